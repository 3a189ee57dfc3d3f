"""Importance of parameters for an objective, computed by Optuna."""

import warnings
from collections.abc import Sequence

from gatehouse.tuning.reports.shown import Body, Dimension, Objective, Shown

_FANOVA = 120  # Up to this number of trials fANOVA takes a second or two; its time grows with the square.
_FEWEST = 4
_MOST = 1500  # Of more trials, an even sample is used.
_TREES = 16


def importances(shown: Shown, objective: Objective) -> tuple[str, list[tuple[str, float]]] | None:
    """A description, and the importance of each parameter, largest first; they sum to 1. None if there is none.

    With few trials it is fANOVA (Hutter et al. 2014) of the parameters that every trial has; with many it is PED-ANOVA
    (Watanabe et al. 2023), which shows what the best tenth depends on, also for conditional parameters.
    """
    trials = shown.succeeded
    if len(trials) < _FEWEST:
        return None
    exact = len(trials) <= _FANOVA
    trials = trials[:: -(-len(trials) // _MOST)]
    dimensions = [dimension for dimension in shown.dimensions if not (exact and dimension.conditions)]
    named = _evaluated(dimensions, trials, objective, exact)
    if not any(value > 0 for _, value in named):
        return None
    if exact:
        caption = f"Share of the variance of {objective.metric} over {len(trials):,} trials (fANOVA)"
        rest = ", of the parameters that all trials have." if len(dimensions) < len(shown.dimensions) else "."
        return caption + rest, named
    return f"What the best tenth of the trials depends on, from {len(trials):,} of them (PED-ANOVA).", named


def _evaluated(
    dimensions: Sequence[Dimension], trials: Sequence[Body], objective: Objective, exact: bool
) -> list[tuple[str, float]]:
    """Importances by name; empty if they cannot be computed, for example if all values are equal."""
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if objective.minimize else "maximize")
    for trial in trials:
        params: dict[str, float] = {}
        distributions: dict[str, BaseDistribution] = {}
        for dimension in dimensions:
            if (value := dimension.of(trial)) is None:
                continue
            if dimension.numeric:
                low, high = float(dimension.spec["min"]), float(dimension.spec["max"])
                distributions[dimension.title] = FloatDistribution(low, high, log=dimension.axis().log)
                # A value that a warm start queued may be outside of the range.
                params[dimension.title] = min(high, max(low, value))
            else:
                distributions[dimension.title] = CategoricalDistribution(list(range(len(dimension.choices))))
                params[dimension.title] = int(value)
        value = objective.of(trial)
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    evaluator = (
        optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
        if exact
        else optuna.importance.PedAnovaImportanceEvaluator()
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # Optuna raises these for too few trials, or for no variance.
        return []
    return [(name, float(value)) for name, value in values.items()]
