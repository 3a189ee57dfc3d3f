"""Importance of parameters for an objective, computed by Optuna."""

import warnings

from gatehouse.tuning.reports.shown import Objective, Shown

_FEWEST, _MOST = 4, 120
"""Of more trials an even sample is used, because the time of fANOVA grows with the square of their number."""
_TREES = 16


def importances(shown: Shown, objective: Objective) -> tuple[str, list[tuple[str, float]]] | None:
    """A description, and the importance of each parameter that all trials have, largest first; None if there is none.

    Importances are the shares of the variance of the objective by fANOVA (Hutter et al. 2014).
    """
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

    trials = shown.succeeded[:: -(-len(shown.succeeded) // _MOST) or 1]
    dimensions = [dimension for dimension in shown.dimensions if not dimension.conditions]
    if len(trials) < _FEWEST:
        return None
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
                params[dimension.title] = min(high, max(low, value))  # A warm start may be outside of the range.
            else:
                distributions[dimension.title] = CategoricalDistribution(list(range(len(dimension.choices))))
                params[dimension.title] = int(value)
        value = objective.of(trial)
        study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            evaluator = optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
            values = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # Optuna raises these for too few trials, or for no variance.
        return None
    if not any(value > 0 for value in values.values()):
        return None
    rest = ", of the parameters that all trials have." if len(dimensions) < len(shown.dimensions) else "."
    caption = f"Share of the variance of {objective.metric} over {len(trials):,} trials (fANOVA){rest}"
    return caption, [(name, float(value)) for name, value in values.items()]
