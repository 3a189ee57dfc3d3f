"""The paired bootstrap: the same draws for both models, and bounds in the direction of each metric."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from gatehouse.evaluation.bootstrap import Measured, Units, on_draws, percentiles
from gatehouse.evaluation.bootstrap import compared as compare
from gatehouse.evaluation.gate import Comparison
from gatehouse.metrics.catalogue import metric_named, metrics_for
from gatehouse.metrics.metric import Metric
from gatehouse.metrics.tasks import BINARY, RANKING

ROWS = 800


def scores(noise: float, seed: int = 0) -> tuple[Any, Any]:
    """Labels, and probabilities that are the truth but for some noise."""
    draw = np.random.default_rng(seed)
    logit = draw.normal(size=ROWS)
    labels = (draw.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return labels, 1 / (1 + np.exp(-(logit + noise * np.random.default_rng(seed + 1).normal(size=ROWS))))


def compared(labels: Any, candidate: Any, champion: Any, metric: str = "log_loss", **how: Any) -> Comparison:
    """The comparison of two models' probabilities; the rule is that of a policy that names nothing."""
    models = BINARY.read(candidate, None), BINARY.read(champion, None)
    return resampled(metric_named(metric), labels, models, Units("row", len(labels)), **how)


def resampled(
    metric: Metric, labels: Any, models: Any, units: Units, confidence: float = 0.95, samples: int = 50, seed: int = 7
) -> Comparison:
    """The comparison of two models' predictions on draws of units."""
    drawn = on_draws([Measured(metric.on_draws(labels, each)) for each in models], units, samples, seed).T
    values = [metric.measure(labels, each) for each in models]
    return compare(metric, values[0], values[1], (drawn[0], drawn[1]), confidence)


@pytest.mark.parametrize("metric", metrics_for("binary"))
def test_worse_is_positive_in_every_metric(metric: str) -> None:
    labels, good = scores(0.1)
    _, bad = scores(3.0)
    worse, better = (compared(labels, *models, metric, samples=100) for models in ((bad, good), (good, bad)))
    assert worse.best_bound <= worse.worse_by <= worse.worst_bound
    assert better.worst_bound < 0 < worse.best_bound
    assert worse.worse_by == -better.worse_by == metric_named(metric).worse_by(worse.candidate, worse.champion)


@pytest.mark.parametrize("metric", ["log_loss", "roc_auc"])
def test_the_draws_are_those_of_scipy(metric: str) -> None:
    labels, good = scores(0.1)
    _, bad = scores(1.0)
    measured = metric_named(metric)

    def worse_by(labels: Any, one: Any, other: Any) -> float:
        return measured.worse_by(measured(labels, one), measured(labels, other))

    expected = stats.bootstrap(
        (labels, good, bad),
        worse_by,
        paired=True,
        vectorized=False,
        n_resamples=50,
        method="percentile",
        confidence_level=0.9,
        batch=1,
        rng=np.random.default_rng(7),
    ).bootstrap_distribution
    found = compared(labels, good, bad, metric)
    assert (found.best_bound, found.worst_bound) == pytest.approx(percentiles(expected, 0.05), rel=1e-9)


def test_the_bound_covers_the_truth_as_often_as_it_says() -> None:
    # Two models of the same quality: the one-sided 90 % bound lies below zero in about a tenth of all test sets.
    missed = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, 300).astype(np.int8)
        one, other = (np.clip(0.5 + 0.1 * draw.normal(size=300), 0.01, 0.99) for _ in range(2))
        missed += compared(labels, one, other, confidence=0.9, samples=100).worst_bound < 0
    assert 8 <= missed <= 36


def test_of_rankings_whole_groups_are_drawn() -> None:
    # In every group of two one model is right and the other wrong: only drawing the rows alone would vary that.
    labels, groups = np.tile([1, 0], 50), np.repeat(np.arange(50), 2)
    right, wrong = (RANKING.read(scores, groups) for scores in (labels * 1.0, 1.0 - labels))
    found = resampled(metric_named("precision_at_1"), labels, (right, wrong), Units("group", 50, groups))
    assert (found.worse_by, found.worst_bound, found.best_bound) == (-1.0, -1.0, -1.0)
