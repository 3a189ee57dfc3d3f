"""Candidate against champion in one metric, from what both have on the same draws of the test rows."""

import numpy as np

from gatehouse.evaluation.bootstrap import percentiles
from gatehouse.evaluation.gate import Comparison
from gatehouse.metrics.catalogue.metric import Array, Metric


def compared(
    metric: Metric,
    candidate: float,
    champion: float,
    on_draws: tuple[Array, Array],
    confidence: float,
    units: int | None = None,
) -> Comparison:
    """Compare two models in a metric.

    The bounds are percentiles of the paired bootstrap (Efron 1979), whose draws are the same for both models, at levels
    that suit the number of units; the standard error is the standard deviation of the difference over draws.

    Args:
        metric: What is compared.
        candidate: Its value on the test rows.
        champion: The champion's.
        on_draws: The values of candidate and champion on each draw, shape (samples,) each.
        confidence: Of each one-sided bound, above a half.
        units: How many units the draws are of; None for so many that it makes no difference.
    """
    ours, theirs = on_draws
    sign = 1.0 if metric.better == "lower" else -1.0
    worse_by = sign * (ours - theirs)
    known = worse_by[~np.isnan(worse_by)]
    best, worst = percentiles(known, 1 - confidence, units)
    return Comparison(
        metric=metric.name,
        candidate=candidate,
        champion=champion,
        worse_by=metric.worse_by(candidate, champion),
        worst_bound=worst,
        best_bound=best,
        standard_error=float(known.std(ddof=1)) if len(known) > 1 else np.nan,
        units=units,
    )
