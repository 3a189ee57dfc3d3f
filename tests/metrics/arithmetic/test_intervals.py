"""Wilson's interval beside that of SciPy."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from gatehouse.metrics.arithmetic.intervals import NORMAL, wilson


@settings(max_examples=100)
@example((11, 11), 0.95)
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_the_interval_of_a_share_is_wilsons(hits: tuple[int, int], level: float) -> None:
    expected = binomtest(*hits).proportion_ci(level, method="wilson")
    found = wilson(hits[0] / hits[1], hits[1], norm.ppf((1 + level) / 2))
    assert found == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= found[0] <= hits[0] / hits[1] <= found[1] <= 1


def test_without_a_level_it_is_that_of_95_percent() -> None:
    assert norm.ppf(0.975) == pytest.approx(NORMAL, abs=1e-15)
