"""Optuna's pruners, which stop trials early, and the steps by which they compare trials."""

import warnings

import optuna

from gatehouse.tuning.spec import ExperimentSpec


def pruner_of(spec: ExperimentSpec, steps: int) -> optuna.pruners.BasePruner:
    """Optuna's pruner.

    Args:
        spec: The experiment.
        steps: Steps of a whole trial. They are counted from 1, so that a step is also the budget used.
    """
    rule = spec.early_stopping
    if rule is None:
        return optuna.pruners.NopPruner()
    if rule.name == "hyperband":
        return optuna.pruners.HyperbandPruner(
            min_resource=min(rule.min_resource, steps), max_resource=steps, reduction_factor=rule.reduction_factor
        )
    if rule.name == "successive_halving":
        return optuna.pruners.SuccessiveHalvingPruner(
            min_resource=rule.min_resource, reduction_factor=rule.reduction_factor
        )
    if rule.name == "patience":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.pruners.PatientPruner(None, patience=rule.patience, min_delta=rule.tolerance)
    # Optuna counts from 0: it stops no trial at a step below the given one.
    begin = {"n_startup_trials": rule.startup_trials, "n_warmup_steps": rule.warmup_steps + 1}
    if rule.name == "median":
        return optuna.pruners.MedianPruner(**begin)
    return optuna.pruners.PercentilePruner(rule.percentile, **begin)


def step_of(done: int, total: int, steps: int) -> int:
    """The step that a trial has reached: the greatest j with done/total >= j/steps; 0 before the first.

    Args:
        done: Epochs or rounds done.
        total: Epochs or rounds of the whole trial.
        steps: Steps of a whole trial.

    Example:
        >>> [step_of(done, 60, 4) for done in (14, 15, 29, 60)]
        [0, 1, 1, 4]
    """
    return min(done, total) * steps // total
