"""Suggests the trials of an experiment again, from its record."""

from collections.abc import Iterable
from typing import Any

from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.trial import Trial


def replay(
    spec: ExperimentSpec,
    seed: int,
    steps: int,
    name: str,
    trials: Iterable[Trial],
    warm: tuple[dict[str, Any], ...] = (),
) -> Trial | None:
    """Suggest the recorded trials again, by what had ended and what was running when each of them was suggested.

    Returns:
        The first trial that is suggested with other parameters than it has; None where all are as they were.
    """
    study = ExperimentStudy(spec, seed, steps, name, warm=warm)
    recorded = list(trials)
    for trial in recorded:
        for earlier in recorded[: trial.number]:
            if earlier.number not in trial.beside and not study.trials[earlier.number].ended:
                for step, value in earlier.intermediate:
                    study.report(earlier.number, step, value)
                study.end(earlier)
        again = study.ask()
        if (again.parameters, again.parent) != (trial.parameters, trial.parent):
            return trial
    return None
