"""Candidate against champion on the same rows, with a paired bootstrap interval."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.components.evaluation.gate import Comparison
from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, ChampionRule
from gatehouse.components.tracking.metrics import average_precision, brier_score, expected_calibration_error, log_loss, roc_auc
from gatehouse.errors import GatehouseError

Array = npt.NDArray[Any]
METRICS: dict[str, Callable[[Array, Array], float]] = {
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "log_loss": log_loss,
    "brier": brier_score,
    "calibration_error": expected_calibration_error,
}


class SelfComparisonError(GatehouseError):
    """A candidate was about to be judged against itself."""


def measure(labels: Array, probabilities: Array) -> dict[str, float]:
    """All metrics of `METRICS`, by name."""
    return {name: metric(labels, probabilities) for name, metric in METRICS.items()}


def compare(
    labels: Array, candidate: Array, champion: Array, rule: ChampionRule, samples: int, seed: int
) -> Comparison:
    """Compare two models' probabilities for the same rows.

    The interval is the percentile interval of the paired bootstrap (Efron 1979): rows are drawn with replacement, both
    models are measured on the draw, and the difference is kept.

    Args:
        labels: 0 or 1, shape (rows,).
        candidate: The candidate's probabilities, shape (rows,).
        champion: The champion's probabilities, shape (rows,).
        rule: Metric and confidence.
        samples: Number of draws.
        seed: Of the draws.
    """
    metric, sign = METRICS[rule.metric], 1.0 if rule.metric in LOWER_IS_BETTER else -1.0
    generator = np.random.default_rng(seed)
    differences = []
    for _ in range(samples):
        drawn = generator.integers(0, len(labels), len(labels))
        differences.append(sign * (metric(labels[drawn], candidate[drawn]) - metric(labels[drawn], champion[drawn])))
    ours, theirs = metric(labels, candidate), metric(labels, champion)
    worst = float(np.quantile(differences, rule.confidence))
    return Comparison(rule.metric, ours, theirs, sign * (ours - theirs), worst)
