"""Importance of parameters for an objective, computed by Optuna, also for conditional parameters."""

import warnings
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gatehouse.tuning.reports.shown import Body, Dimension, Objective, Shown

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

_EXACT = 120  # Up to this number of trials fANOVA takes a second or two; its time grows with the square.
_LEAST = 4
_MOST = 1500  # Maximum number of trials for PED-ANOVA; of more, an even sample is used.
_TREES = 16


def importances(shown: Shown, objective: Objective) -> Iterator[tuple[str, list[tuple[str, float]]]]:
    """A description, and the importance of each parameter, largest first; they sum to 1.

    With few trials fANOVA (Hutter et al. 2014) is used. It needs parameters that every trial has: with conditional
    parameters, it is computed for the common ones, and then within the trials of each value on which others depend.
    With many trials PED-ANOVA (Watanabe et al. 2023; for conditional parameters Imamura et al. 2026) is used, which
    shows what the best tenth depends on, for all parameters at once.
    """
    trials = shown.succeeded
    if len(trials) < _LEAST or not shown.dimensions:
        return
    if len(trials) > _EXACT:
        every = -(-len(trials) // _MOST)
        sampled = f", of which one in {every} was looked at" if every > 1 else ""
        if found := _evaluated(shown.dimensions, trials[::every], objective, exact=False):
            yield f"What the best tenth of {len(trials):,} trials depends on{sampled} (PED-ANOVA).", found
        return
    common = [one for one in shown.dimensions if not one.conditions]
    if found := _evaluated(common, trials, objective, exact=True):
        yield f"Share of the variance of {objective.metric} over {len(trials):,} trials (fANOVA).", found
    for condition in dict.fromkeys(_condition(one) for one in shown.dimensions if one.conditions):
        opened = [one for one in shown.dimensions if _condition(one) == condition]
        within = [one for one in trials if all(dimension.of(one) is not None for dimension in opened)]
        both = [one for one in [*common, *opened] if len({one.of(trial) for trial in within} - {None}) > 1]
        both = [one for one in both if all(one.of(trial) is not None for trial in within)]
        if len(within) >= _LEAST and (found := _evaluated(both, within, objective, exact=True)):
            where = opened[0].title.partition(", ")[2]
            yield f"The same over the {len(within):,} trials {where}.", found


def _condition(dimension: Dimension) -> str:
    return repr(sorted(dimension.conditions.items()))


def _evaluated(
    dimensions: Sequence[Dimension], trials: Sequence[Body], objective: Objective, *, exact: bool
) -> list[tuple[str, float]]:
    """Importances by name; empty if they cannot be computed, for example if all values are equal."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if objective.minimize else "maximize")
    distributions = {one.title: _distribution(one) for one in dimensions}
    made = []
    for trial in trials:
        has = {one.title: value for one in dimensions if (value := one.of(trial)) is not None}
        own = {name: distributions[name] for name in has}
        inside = {name: _inside(own[name], value) for name, value in has.items()}
        made.append(optuna.trial.create_trial(params=inside, distributions=own, value=objective.of(trial)))
    study.add_trials(made)
    evaluator = (
        optuna.importance.FanovaImportanceEvaluator(n_trees=_TREES, seed=0)
        if exact
        else optuna.importance.PedAnovaImportanceEvaluator()
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    except (ValueError, RuntimeError):  # Optuna raises these for too few trials, or for no variance.
        return []
    named = [(name, float(value)) for name, value in found.items()]
    return named if any(value > 0 for _, value in named) else []


def _distribution(dimension: Dimension) -> "BaseDistribution":
    import optuna

    if not dimension.numeric:
        return optuna.distributions.CategoricalDistribution(list(range(len(dimension.choices))))
    axis = dimension.axis()
    low, high = float(dimension.spec["min"]), float(dimension.spec["max"])
    return optuna.distributions.FloatDistribution(low, high, log=axis.log)


def _inside(distribution: "BaseDistribution", value: float) -> float:
    """A value limited to the distribution: a value queued by a warm start may be outside it."""
    import optuna

    if isinstance(distribution, optuna.distributions.FloatDistribution):
        return min(distribution.high, max(distribution.low, value))
    return int(value)
