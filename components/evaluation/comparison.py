"""Candidate against champion on the same rows, with a paired bootstrap interval."""

import numpy as np

from gatehouse.components.evaluation.gate import Comparison
from gatehouse.components.metrics.catalogue.metric import Array, Metric, Predictions


def compare(
    metric: Metric,
    labels: Array,
    candidate: Predictions,
    champion: Predictions,
    *,
    confidence: float,
    samples: int,
    seed: int,
) -> Comparison:
    """Compare two models' predictions for the same rows.

    The bounds are those of the percentile interval of the paired bootstrap (Efron 1979): rows, or groups of a ranking,
    are drawn with replacement, both models are measured on the same draw, and the difference is kept.

    Args:
        metric: What is compared.
        labels: Shape (rows,).
        candidate: The candidate's predictions for the rows.
        champion: The champion's.
        confidence: Of each one-sided bound, above a half.
        samples: Number of draws.
        seed: Of the draws.
    """
    ours, theirs = metric.on_draws(labels, candidate), metric.on_draws(labels, champion)
    generator, units = np.random.default_rng(seed), metric.units(candidate)
    worse_by = np.empty(samples)
    for index in range(samples):
        drawn = generator.integers(0, units, units)
        worse_by[index] = metric.worse_by(ours(drawn), theirs(drawn))
    mine, other = metric.measure(labels, candidate), metric.measure(labels, champion)
    best, worst = np.quantile(worse_by, (1 - confidence, confidence))
    return Comparison(metric.name, mine, other, metric.worse_by(mine, other), float(worst), float(best))
