"""Selects the best trial: by one objective, or the knee of the Pareto front of several."""

import math
import operator
from collections.abc import Sequence

from gatehouse.tuning.spec import ExperimentSpec
from gatehouse.tuning.trial import Trial


def pareto_front(trials: Sequence[Trial], spec: ExperimentSpec) -> list[Trial]:
    """The feasible trials that no feasible trial dominates, in the order of their numbers.

    A trial is dominated if another is nowhere worse and somewhere better. With one objective, the result is the trials
    with the best value.
    """
    if len(spec.objective) > 1:
        return [trial for trial in trials if is_undominated(trial, trials, spec)]
    losses = [(_losses(trial, spec), trial) for trial in trials if trial.feasible]
    least = min((loss for loss, _ in losses), default=())
    return [trial for loss, trial in losses if loss == least]


def is_undominated(trial: Trial, trials: Sequence[Trial], spec: ExperimentSpec) -> bool:
    """Whether a trial is feasible and no feasible trial dominates it."""
    if not trial.feasible:
        return False
    own = _losses(trial, spec)
    losses = (_losses(other, spec) for other in trials if other.feasible)
    return not any(loss != own and all(map(operator.le, loss, own)) for loss in losses)


def best_trial(trials: Sequence[Trial], spec: ExperimentSpec) -> Trial | None:
    """The knee of the Pareto front; with one objective it is the best trial. None if no trial is feasible.

    The knee is the trial nearest to the ideal point, with each objective scaled to its range on the front:

        argmin over i of  sum over k of ((f_k(i) - min f_k) / (max f_k - min f_k))^2

    where f_k is minimised (a value that is maximised counts negative), min and max are taken over the front, and an
    objective without a range counts 0. Among equal trials the first is taken.
    """
    front = pareto_front(trials, spec)
    losses = [_losses(trial, spec) for trial in front]
    ranges = [(min(column), max(column)) for column in zip(*losses, strict=True)]

    def distance(values: tuple[float, ...]) -> float:
        scaled = ((value - low) / (high - low) for value, (low, high) in zip(values, ranges, strict=True) if high > low)
        return math.fsum(share**2 for share in scaled)

    return min(zip(front, losses, strict=True), key=lambda pair: distance(pair[1]))[0] if front else None


def _losses(trial: Trial, spec: ExperimentSpec) -> tuple[float, ...]:
    return tuple(trial.values[aim.metric] * (1 if aim.minimize else -1) for aim in spec.objective)
