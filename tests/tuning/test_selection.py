"""The best trial: of one objective, and the knee of a front."""

from hypothesis import given
from hypothesis import strategies as st

from gatehouse.tuning.controller import best_trial, is_undominated, pareto_front
from gatehouse.tuning.trial import Trial
from tests.tuning.stand_in import experiment

EXPERIMENT = experiment()
TWO = experiment(objective=["log_loss", "roc_auc"], algorithm="random")

_VALUES = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=12)


def _trials(values: list[tuple[int, int, bool]]) -> list[Trial]:
    return [
        Trial(number, "succeeded", {}, {"log_loss": float(loss), "roc_auc": float(area)}, feasible=feasible)
        for number, (loss, area, feasible) in enumerate(values)
    ]


@given(_VALUES)
def test_the_front_holds_what_none_dominates_and_dominates_all_others(values: list[tuple[int, int, bool]]) -> None:
    trials = _trials(values)
    front = {(trial.values["log_loss"], trial.values["roc_auc"]) for trial in pareto_front(trials, TWO)}
    assert {trial.number for trial in pareto_front(trials, TWO)} == {
        trial.number for trial in trials if is_undominated(trial, trials, TWO)
    }
    for trial in trials:
        own = trial.values["log_loss"], trial.values["roc_auc"]
        beaten = any(loss <= own[0] and area >= own[1] and (loss, area) != own for loss, area in front)
        assert not trial.feasible or (own in front) != beaten


@given(_VALUES)
def test_with_one_objective_the_knee_is_the_best_trial(values: list[tuple[int, int, bool]]) -> None:
    trials = _trials(values)
    losses = [trial.values["log_loss"] for trial in trials if trial.feasible]
    best = best_trial(trials, EXPERIMENT)
    assert (best is None) == (not losses)
    if best is not None:
        assert best.number == next(t.number for t in trials if t.feasible and t.values["log_loss"] == min(losses))


def test_the_knee_is_nearest_to_the_ideal_of_the_front() -> None:
    """Scaled: (0, 1), (0.25, 0.25), (1, 0); what is not on the front, or not feasible, changes no scale."""
    trials = _trials([(0, 0, True), (1, 3, True), (4, 4, True), (9, 0, True), (0, 4, False)])
    knee = best_trial(trials, TWO)
    assert knee is not None and knee.number == 1 and [entry.number for entry in pareto_front(trials, TWO)] == [0, 1, 2]
