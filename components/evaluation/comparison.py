"""Candidate against champion on the same rows, with a paired bootstrap interval."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.components.evaluation.gate import Comparison
from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, ChampionRule
from gatehouse.components.metrics.binary import (
    average_precision,
    brier_score,
    expected_calibration_error,
    log_loss,
    roc_auc,
)

Array = npt.NDArray[Any]
_TINY = 1e-15  # As in the metric itself.
METRICS: dict[str, Callable[[Array, Array], float]] = {
    "roc_auc": roc_auc,
    "average_precision": average_precision,
    "log_loss": log_loss,
    "brier": brier_score,
    "calibration_error": expected_calibration_error,
}


def measure(labels: Array, probabilities: Array) -> dict[str, float]:
    """All metrics of `METRICS`, by name."""
    return {name: metric(labels, probabilities) for name, metric in METRICS.items()}


def compare(
    labels: Array, candidate: Array, champion: Array, rule: ChampionRule, samples: int, seed: int
) -> Comparison:
    """Compare two models' probabilities for the same rows.

    The bounds are those of the percentile interval of the paired bootstrap (Efron 1979): rows are drawn with
    replacement, both models are measured on the same draw, and the difference is kept.

    Args:
        labels: 0 or 1, shape (rows,).
        candidate: The candidate's probabilities, shape (rows,).
        champion: The champion's probabilities, shape (rows,).
        rule: Metric and confidence.
        samples: Number of draws.
        seed: Of the draws.
    """
    metric, sign = METRICS[rule.metric], 1.0 if rule.metric in LOWER_IS_BETTER else -1.0
    ours, theirs = on_draws(rule.metric, labels, candidate), on_draws(rule.metric, labels, champion)
    generator = np.random.default_rng(seed)
    differences = np.empty(samples)
    for index in range(samples):
        drawn = generator.integers(0, len(labels), len(labels))
        differences[index] = sign * (ours(drawn) - theirs(drawn))
    mine, other = metric(labels, candidate), metric(labels, champion)
    best, worst = np.quantile(differences, (1 - rule.confidence, rule.confidence))
    return Comparison(rule.metric, mine, other, sign * (mine - other), float(worst), float(best))


def on_draws(metric: str, labels: Array, scores: Array) -> Callable[[Array], float]:
    """A function from row numbers, with repeats, to the metric of these rows; prepared so that draws are cheap."""
    if metric == "log_loss":
        kept = np.clip(scores, _TINY, 1 - _TINY)
        return _mean_of(-np.where(labels > 0, np.log(kept), np.log1p(-kept)))
    if metric == "brier":
        return _mean_of((scores - labels) ** 2)
    if metric in ("roc_auc", "average_precision"):
        return _of_ranks(metric, labels, scores)
    whole = METRICS[metric]
    return lambda drawn: whole(labels[drawn], scores[drawn])


def _mean_of(losses: Array) -> Callable[[Array], float]:
    return lambda drawn: float(losses[drawn].mean())


def _of_ranks(metric: str, labels: Array, scores: Array) -> Callable[[Array], float]:
    """Metrics that depend on the order of scores alone: ranked once, each draw only counts."""
    distinct, ranks = np.unique(scores, return_inverse=True)
    positive = labels > 0

    def measured(drawn: Array) -> float:
        rows = np.bincount(ranks[drawn], minlength=len(distinct))[::-1]
        hits = np.bincount(ranks[drawn[positive[drawn]]], minlength=len(distinct))[::-1]
        ones = int(hits.sum())
        if metric == "average_precision":
            taken = np.cumsum(rows)
            return float(np.sum(hits * np.cumsum(hits) / np.maximum(taken, 1)) / max(ones, 1))
        misses = rows - hits
        pairs = ones * (len(drawn) - ones)
        below = np.cumsum(misses[::-1])[::-1] - misses / 2
        return float(np.sum(hits * below) / pairs) if pairs else 0.5

    return measured
