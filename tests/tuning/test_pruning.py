"""Steps: equal shares of a budget, whatever a trial counts."""

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.tuning.suggestion import step_of


@given(st.integers(1, 500), st.integers(1, 60))
def test_a_step_is_reached_as_soon_as_its_share_is_done(total: int, steps: int) -> None:
    reached = [step_of(done, total, steps) for done in range(total + 1)]
    assert reached[0] == 0 and reached[-1] == steps and reached == sorted(reached)
    for done, step in enumerate(reached):
        assert done * steps >= step * total and (step == steps or done * steps < (step + 1) * total)
    assert step_of(total + 7, total, steps) == steps
