"""Decides when and why an experiment ends."""

import math
import warnings
from dataclasses import dataclass
from typing import Literal

import optuna
from optuna.terminator import RegretBoundEvaluator

from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.study import ExperimentStudy
from gatehouse.tuning.suggestion import grid_of

Ending = Literal[
    "stopped",
    "max_failed_trial_count",
    "goal",
    "expected_improvement",
    "minutes",
    "cost",
    "steps",
    "exhausted",
    "generations",
    "max_trial_count",
]

LAST_TRIALS_END = ("exhausted", "generations", "max_trial_count")
"""Endings after which running trials may finish; after others they are stopped."""

_LEAST_TRIALS = 20
"""Number of successful trials from which Optuna can estimate the remaining improvement."""


@dataclass(frozen=True)
class Spent:
    """What an experiment has used: seconds of its controllers, cost of its trials (None if no price is known)."""

    seconds: float
    cost: float | None


class Endings:
    """Decides whether an experiment ends; the estimate is made once per successful trial."""

    def __init__(self, study: ExperimentStudy) -> None:
        self._study = study
        self._estimated: dict[int, float] = {}

    def reason(self, spent: Spent, stopped: bool) -> Ending | None:
        """Why the experiment ends now; None if it continues.

        Args:
            spent: What it has used.
            stopped: Whether a person asked it to end.
        """
        spec, trials, population = self._study.spec, self._study.trials, self._study.population
        budget, waiting = spec.budget, self._study.waiting
        failed = sum(trial.state == "failed" and trial.number not in waiting for trial in trials)
        found: list[tuple[bool, Ending]] = [
            (stopped, "stopped"),
            (failed > spec.max_failed_trial_count, "max_failed_trial_count"),
            (self._reached(), "goal"),
            (budget.minutes is not None and spent.seconds >= budget.minutes * 60, "minutes"),
            (budget.cost is not None and (spent.cost or 0.0) >= budget.cost, "cost"),
            (budget.steps is not None and self.steps >= budget.steps, "steps"),
            (spec.algorithm.name == "grid" and len(trials) >= grid_size(spec), "exhausted"),
            (population is not None and len(trials) >= population.trials, "generations"),
            (len(trials) >= spec.max_trial_count, "max_trial_count"),
        ]
        ending = next((reason for holds, reason in found if holds), None)
        return ending or ("expected_improvement" if self._hopeless() else None)

    @property
    def steps(self) -> int:
        """Total steps of all trials."""
        return sum(self._study.taken(trial) for trial in self._study.trials)

    def _reached(self) -> bool:
        aimed = [each for each in self._study.spec.objective if each.goal is not None]
        return bool(aimed) and any(
            trial.feasible and all(each.is_reached(trial.values[each.metric]) for each in aimed)
            for trial in self._study.trials
        )

    def _hopeless(self) -> bool:
        least = self._study.spec.budget.expected_improvement
        done = sum(trial.state == "succeeded" for trial in self._study.trials)
        if least is None or done < _LEAST_TRIALS:
            return False
        if done not in self._estimated:
            self._estimated[done] = expected_improvement(self._study.optuna, self._study.seed)
        return self._estimated[done] <= least


def grid_size(spec: ExperimentSpec) -> int:
    """How many configurations a grid has."""
    return math.prod(len(values) for values in grid_of(spec).values())


def expected_improvement(study: optuna.Study, seed: int) -> float:
    """How much better than the best trial a trial could be: Optuna's regret bound (Makarova et al. 2022).

    It holds with high probability where a Gaussian process describes the objective, and is in the objective's unit.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        bound = RegretBoundEvaluator(min_n_trials=_LEAST_TRIALS, seed=seed)
        return float(bound.evaluate(study.get_trials(deepcopy=False), study.direction))
