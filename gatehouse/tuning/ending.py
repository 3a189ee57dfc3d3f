"""Decides when and why an experiment ends, and explains an end without a best trial."""

import math
from collections.abc import Sequence
from typing import Literal

from gatehouse.tuning.spec import ExperimentSpec
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


def ending_of(study: ExperimentStudy, seconds: float, cost: float, stopped: bool) -> Ending | None:
    """Why the experiment ends now; None if it continues.

    `seconds` are those of its controllers, `cost` is that of its trials, and `stopped` says whether a person asked it
    to end.
    """
    spec, trials, population, budget = study.spec, study.trials, study.population, study.spec.budget
    failed = sum(trial.state == "failed" and trial.number not in study.waiting for trial in trials)
    aimed = [objective for objective in spec.objective if objective.goal is not None]

    def reached(trial: Trial) -> bool:
        return trial.feasible and all(objective.is_reached(trial.values[objective.metric]) for objective in aimed)

    reasons: list[tuple[bool, Ending]] = [
        (stopped, "stopped"),
        (failed > spec.max_failed_trial_count, "max_failed_trial_count"),
        (bool(aimed) and any(map(reached, trials)), "goal"),
        (budget.minutes is not None and seconds >= budget.minutes * 60, "minutes"),
        (budget.cost is not None and cost >= budget.cost, "cost"),
        (budget.steps is not None and steps_taken(study) >= budget.steps, "steps"),
        (spec.algorithm.name == "grid" and len(trials) >= math.prod(map(len, grid_of(spec).values())), "exhausted"),
        (population is not None and len(trials) >= population.trials, "generations"),
        (len(trials) >= spec.max_trial_count, "max_trial_count"),
    ]
    return next((reason for holds, reason in reasons if holds), None)


def steps_taken(study: ExperimentStudy) -> int:
    """Total steps of all trials."""
    return sum(study.steps_of(trial) for trial in study.trials)


def failure(trials: Sequence[Trial], spec: ExperimentSpec, ending: Ending, key: str) -> str:
    """The message for an experiment, with the key of its study, that ended without a best trial."""
    states = [trial.state for trial in trials]
    failed = [trial for trial in trials if trial.state == "failed"]
    if ending == "max_failed_trial_count":
        message = f"{len(failed)} of {len(trials)} trials failed, expected at most {spec.max_failed_trial_count}."
    elif "succeeded" in states:
        measured = [trial.metrics | trial.measures for trial in trials if trial.state == "succeeded"]
        nearest = []
        for constraint in spec.constraints:
            name, most, least = constraint.measure, constraint.at_most, constraint.at_least
            values = [values[name] for values in measured if name in values]
            limit = f"{name}: at most {most:g}" if most is not None else f"{name}: at least {least:g}"
            extreme = (min if most is not None else max)(values, default=math.nan)
            nearest.append(f"{limit}, the nearest was {extreme:g}" if values else f"{limit}, measured in no trial")
        limits = "; ".join(nearest)
        message = f"None of the {states.count('succeeded')} trials that succeeded keeps to all constraints: {limits}."
    else:
        counts = ", ".join(f"{states.count(state)} {state}" for state in sorted(set(states)))
        message = f"None of {len(trials)} trials succeeded ({counts or 'none was begun'})."
        if ending == "stopped":
            more = spec.max_trial_count + 1
            message += f" Go on with: gatehouse tuning resume {key} --max-trial-count {more} or more."
        elif ending in ("minutes", "cost", "steps"):
            message += f" tuning.budget.{ending} ({getattr(spec.budget, ending):g}) was used up."
    message += "".join(f"\n  - trial {trial.number}: {trial.message or trial.reason}" for trial in failed)
    again = sum(trial.provisional for trial in failed)
    if again and ending in (*LAST_TRIALS_END, "max_failed_trial_count", "stopped"):
        message += f"\nThe next run tries {again} of them again: they failed for a reason outside of the search."
    return message
