"""NDCG: as scikit-learn has it in each group, with ties, of all places and of the first ten."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.catalogue.metric import Metric
from gatehouse.metrics.ndcg import ndcg
from gatehouse.metrics.ndcg_at_10 import ndcg_at_10
from tests.metrics.rows import RANKINGS


@pytest.mark.parametrize(("metric", "most"), [(ndcg, None), (ndcg_at_10, 10)])
@given(RANKINGS)
def test_it_agrees_with_sklearn(metric: Metric, most: int | None, rows: tuple[Any, Any, Any]) -> None:
    labels, scores, groups = rows
    expected = []
    for group in np.unique(groups):
        chosen = groups == group
        if labels[chosen].any():
            # Theirs refuses a single row.
            alone = chosen.sum() == 1
            expected.append(1.0 if alone else sklearn.ndcg_score([labels[chosen]], [scores[chosen]], k=most))
    assert metric(labels, scores, groups) == pytest.approx(np.mean(expected) if expected else 0.0, abs=1e-9)


def test_a_value_worked_out_by_hand() -> None:
    labels, scores = np.array([0.0, 2.0, 1.0]), np.array([0.9, 0.5, 0.1])
    expected = (2 / np.log2(3) + 1 / 2) / (2 + 1 / np.log2(3))
    assert ndcg(labels, scores, np.zeros(3)) == pytest.approx(expected)


def test_a_model_that_scores_all_rows_alike_gains_nothing_from_the_order_given() -> None:
    half = (1 + 1 / np.log2(3)) / 2
    assert ndcg(np.array([1.0, 0.0]), np.zeros(2), np.zeros(2)) == pytest.approx(half)
    assert ndcg(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)) == pytest.approx(half)


def test_places_after_the_tenth_gain_nothing() -> None:
    labels, scores, group = np.eye(12)[10], -np.arange(12.0), np.zeros(12)
    assert ndcg(labels, scores, group) == pytest.approx(1 / np.log2(12))
    assert ndcg_at_10(labels, scores, group) == 0.0
    assert ndcg_at_10(np.eye(12)[0], scores, group) == 1.0


def test_groups_without_a_gain_do_not_count() -> None:
    labels, groups = np.array([0.0, 0.0, 1.0]), np.array([0, 0, 1])
    assert ndcg(labels, np.zeros(3), groups) == 1.0
    assert ndcg(np.zeros(3), np.zeros(3), groups) == 0.0
