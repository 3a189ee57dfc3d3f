"""An experiment without a best trial says why, and what to do."""

from typing import Any

import pytest

from gatehouse.tuning.ending import Ending
from gatehouse.tuning.refusal import failure
from gatehouse.tuning.trial import State, Trial
from tests.tuning.stand_in import experiment

LIMITS = [{"measure": "latency_ms", "at_most": 1e-06}, {"measure": "roc_auc", "at_least": 0.9}]


def _trials(*states: State, **given: Any) -> list[Trial]:
    return [Trial(number, state, {}, **given) for number, state in enumerate(states)]


@pytest.mark.parametrize(
    ("trials", "given", "ending", "told"),
    [
        (
            [
                *_trials("succeeded", measures={"latency_ms": 0.5}, metrics={"roc_auc": 0.75}),
                *_trials("succeeded", measures={"latency_ms": 0.21}, metrics={"roc_auc": 0.5}),
            ],
            {"constraints": LIMITS},
            "max_trial_count",
            "None of the 2 trials that succeeded keeps to all constraints: latency_ms: at most 1e-06, the least was "
            "0.21; roc_auc: at least 0.9, the most was 0.75. Loosen tuning.constraints, or search other parameters.",
        ),
        (
            _trials("killed", "killed"),
            {},
            "stopped",
            "None of 2 trials succeeded (2 killed). The experiment was stopped before any trial succeeded. Run the "
            "pipeline again to go on with other trials, or gatehouse tuning resume k1 --max-trial-count 9 or more.",
        ),
        (
            _trials("killed"),
            {"budget": {"minutes": 0.5}},
            "minutes",
            "None of 1 trials succeeded (1 killed). tuning.budget.minutes (0.5) was used before any trial succeeded; "
            "raise it and run again.",
        ),
        (
            _trials("early_stopped", "early_stopped"),
            {"early_stopping": "patience"},
            "max_trial_count",
            "None of 2 trials succeeded (2 early_stopped). early_stopping ended 2 of them, and a trial that is "
            "stopped early leaves no model to be the best: take tuning.early_stopping: patience out, and let "
            "training itself end a trial that becomes no better, as trial_settings: {stopping.patience: 3}; such a "
            "trial succeeds.",
        ),
        (
            _trials("failed", told="Out of memory."),
            {},
            "max_trial_count",
            "None of 1 trials succeeded (1 failed). What failed:\n  - trial 0: Out of memory.",
        ),
    ],
)
def test_an_experiment_without_a_best_trial_says_why(
    trials: list[Trial], given: dict[str, Any], ending: Ending, told: str
) -> None:
    assert failure(trials, experiment(**given), ending, "k1") == told
