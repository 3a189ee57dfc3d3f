"""Decides when and why an experiment ends, and explains an end without a best trial."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gatehouse.tuning.spec import Constraint, ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.suggestion import grid_of
from gatehouse.tuning.trial import Trial

Ending = Literal[
    "stopped",
    "max_failed_trial_count",
    "goal",
    "minutes",
    "cost",
    "steps",
    "exhausted",
    "generations",
    "max_trial_count",
]

LAST_TRIALS_END = ("exhausted", "generations", "max_trial_count")
"""Endings after which running trials may finish; after others they are stopped."""


@dataclass(frozen=True)
class Spent:
    """What an experiment has used: seconds of its controllers, cost of its trials (None if no price is known)."""

    seconds: float
    cost: float | None


class Endings:
    """Decides whether an experiment ends."""

    def __init__(self, study: ExperimentStudy) -> None:
        self._study = study

    def reason(self, spent: Spent, stopped: bool) -> Ending | None:
        """Why the experiment ends now; None if it continues. `stopped` says whether a person asked it to end."""
        spec, trials, population = self._study.spec, self._study.trials, self._study.population
        budget, waiting = spec.budget, self._study.waiting
        failed = sum(trial.state == "failed" and trial.number not in waiting for trial in trials)
        aimed = [objective for objective in spec.objective if objective.goal is not None]

        def reached(trial: Trial) -> bool:
            return trial.feasible and all(objective.is_reached(trial.values[objective.metric]) for objective in aimed)

        reasons: list[tuple[bool, Ending]] = [
            (stopped, "stopped"),
            (failed > spec.max_failed_trial_count, "max_failed_trial_count"),
            (bool(aimed) and any(map(reached, trials)), "goal"),
            (budget.minutes is not None and spent.seconds >= budget.minutes * 60, "minutes"),
            (budget.cost is not None and (spent.cost or 0.0) >= budget.cost, "cost"),
            (budget.steps is not None and self.steps >= budget.steps, "steps"),
            (spec.algorithm.name == "grid" and len(trials) >= configurations(spec), "exhausted"),
            (population is not None and len(trials) >= population.trials, "generations"),
            (len(trials) >= spec.max_trial_count, "max_trial_count"),
        ]
        return next((reason for holds, reason in reasons if holds), None)

    @property
    def steps(self) -> int:
        """Total steps of all trials."""
        return sum(self._study.taken(trial) for trial in self._study.trials)


def configurations(spec: ExperimentSpec) -> int:
    """Number of configurations of a grid."""
    return math.prod(len(values) for values in grid_of(spec).values())


def failure(trials: Sequence[Trial], spec: ExperimentSpec, ending: Ending, key: str) -> str:
    """The message for an experiment, with the key of its study, that ended without a best trial."""
    states = [trial.state for trial in trials]
    failed = [trial for trial in trials if trial.state == "failed"]
    if ending == "max_failed_trial_count":
        most = spec.max_failed_trial_count
        message = f"{len(failed)} of {len(trials)} trials failed, expected at most {most}."
    elif "succeeded" in states:
        limits = "; ".join(_nearest(trials, constraint) for constraint in spec.constraints)
        message = f"None of the {states.count('succeeded')} trials that succeeded keeps to all constraints: {limits}."
    else:
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        message = f"None of {len(trials)} trials succeeded ({counts or 'none was begun'})."
        if ending == "stopped":
            more = spec.max_trial_count + 1
            message += f" Go on with: gatehouse tuning resume {key} --max-trial-count {more} or more."
        elif ending in ("minutes", "cost", "steps"):
            message += f" tuning.budget.{ending} ({getattr(spec.budget, ending):g}) was used up."
        if "early_stopped" in states:
            message += (
                f" early_stopping ended {states.count('early_stopped')} of them; such a trial leaves no model. Give "
                "tuning.early_stopping more steps, or use trial_settings: {stopping.patience: 3}, which keeps models."
            )
    message += "".join(f"\n  - trial {trial.number}: {trial.message or trial.reason}" for trial in failed)
    again = sum(trial.provisional for trial in failed)
    if again and ending in (*LAST_TRIALS_END, "max_failed_trial_count", "stopped"):
        message += f"\nThe next run tries {again} of them again: they failed for a reason outside of the search."
    return message


def _nearest(trials: Sequence[Trial], constraint: Constraint) -> str:
    """The limit of a constraint, and the nearest measured value."""
    name, most, least = constraint.measure, constraint.at_most, constraint.at_least
    measured = [trial.metrics | trial.measures for trial in trials if trial.state == "succeeded"]
    values = [values[name] for values in measured if name in values]
    limit = f"at most {most:g}" if most is not None else f"at least {least:g}"
    if not values:
        return f"{name}: {limit}, measured in no trial"
    nearest = f"the least was {min(values):g}" if most is not None else f"the most was {max(values):g}"
    return f"{name}: {limit}, {nearest}"
