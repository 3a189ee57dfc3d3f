"""The paired bootstrap: the same draws for both models, and prepared metrics that equal the plain ones."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.components.evaluation.comparison import METRICS, compare, measure, on_draws
from gatehouse.components.evaluation.spec import LOWER_IS_BETTER, ChampionRule

ROWS = 800


def scores(noise: float, seed: int = 0) -> tuple[Any, Any]:
    """Labels, and probabilities that are the truth but for some noise."""
    draw = np.random.default_rng(seed)
    logit = draw.normal(size=ROWS)
    labels = (draw.random(ROWS) < 1 / (1 + np.exp(-logit))).astype(np.int8)
    return labels, 1 / (1 + np.exp(-(logit + noise * np.random.default_rng(seed + 1).normal(size=ROWS))))


@pytest.mark.parametrize("metric", sorted(METRICS))
@given(st.integers(0, 1000), st.integers(1, 40), st.booleans())
def test_a_prepared_metric_equals_the_plain_one_on_every_draw(metric: str, seed: int, rows: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, rows).astype(np.int8)
    given = draw.random(rows)
    given = np.round(given) if ties else given
    drawn = draw.integers(0, rows, rows)
    expected = METRICS[metric](labels[drawn], given[drawn])
    assert on_draws(metric, labels, given)(drawn) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("metric", sorted(METRICS))
def test_worse_is_positive_in_every_metric(metric: Any) -> None:
    labels, good = scores(0.1)
    _, bad = scores(3.0)
    rule = ChampionRule(metric=metric)
    worse, better = compare(labels, bad, good, rule, 100, 7), compare(labels, good, bad, rule, 100, 7)
    assert worse.best_bound <= worse.worse_by <= worse.worst_bound
    assert better.worst_bound < 0 < worse.best_bound
    assert worse.worse_by == pytest.approx(-better.worse_by)
    sign = 1 if metric in LOWER_IS_BETTER else -1
    assert worse.worse_by == pytest.approx(sign * (worse.candidate - worse.champion))


def test_an_equal_model_is_equal_on_every_draw() -> None:
    labels, good = scores(0.5)
    for metric in METRICS:
        found = compare(labels, good, good.copy(), ChampionRule(metric=metric), 50, 7)
        assert (found.worse_by, found.worst_bound, found.best_bound) == (0.0, 0.0, 0.0)


def test_candidate_and_champion_keep_their_own_numbers() -> None:
    labels, good = scores(0.1)
    _, bad = scores(3.0)
    found = compare(labels, good, bad, ChampionRule(), 50, 7)
    assert found.candidate == METRICS["log_loss"](labels, good)
    assert found.champion == METRICS["log_loss"](labels, bad)


def test_the_seed_decides_the_draws() -> None:
    labels, good = scores(0.1)
    _, bad = scores(1.0)
    first = compare(labels, good, bad, ChampionRule(), 50, 7)
    assert first == compare(labels, good, bad, ChampionRule(), 50, 7)
    assert first != compare(labels, good, bad, ChampionRule(), 50, 8)


def test_the_bound_covers_the_truth_as_often_as_it_says() -> None:
    # Two models of the same quality: the one-sided 90 % bound lies below zero in about a tenth of all test sets.
    missed = 0
    for seed in range(200):
        draw = np.random.default_rng(seed)
        labels = draw.integers(0, 2, 300).astype(np.int8)
        one, other = (np.clip(0.5 + 0.1 * draw.normal(size=300), 0.01, 0.99) for _ in range(2))
        missed += compare(labels, one, other, ChampionRule(confidence=0.9), 100, 7).worst_bound < 0
    assert 8 <= missed <= 36


def test_all_metrics_are_measured() -> None:
    labels, good = scores(0.1)
    assert set(measure(labels, good)) == set(METRICS)
    assert measure(labels, np.full(ROWS, 0.3))["roc_auc"] == 0.5
