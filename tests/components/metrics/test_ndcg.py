"""NDCG: as scikit-learn has it in each group; rows of equal score stand in the order given."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.components.metrics.ndcg import ndcg
from tests.components.metrics.rows import RANKINGS


@given(RANKINGS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any, Any]) -> None:
    labels, scores, groups = rows
    scores = scores + 10 * np.arange(len(scores))[::-1] * (scores == np.round(scores, 2))  # No ties: theirs differ.
    scores = np.unique(scores, return_inverse=True)[1] * 1.0
    expected = []
    for group in np.unique(groups):
        chosen = groups == group
        if not labels[chosen].any():
            continue
        alone = chosen.sum() == 1
        expected.append(1.0 if alone else sklearn.ndcg_score([labels[chosen]], [_distinct(scores[chosen])]))
    assert ndcg(labels, scores, groups) == pytest.approx(np.mean(expected) if expected else 0.0, abs=1e-9)


def _distinct(scores: Any) -> Any:
    """The same order, with rows of equal score in the order given."""
    order = np.argsort(-scores, kind="stable")
    ranks = np.empty(len(scores))
    ranks[order] = np.arange(len(scores))[::-1]
    return ranks


def test_a_value_worked_out_by_hand() -> None:
    labels, scores = np.array([0.0, 2.0, 1.0]), np.array([0.9, 0.5, 0.1])
    expected = (2 / np.log2(3) + 1 / 2) / (2 + 1 / np.log2(3))
    assert ndcg(labels, scores, np.zeros(3)) == pytest.approx(expected)


def test_equal_scores_keep_the_order_given() -> None:
    assert ndcg(np.array([1.0, 0.0]), np.zeros(2), np.zeros(2)) == 1.0
    assert ndcg(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)) == pytest.approx(1 / np.log2(3))


def test_groups_without_a_gain_do_not_count() -> None:
    labels, groups = np.array([0.0, 0.0, 1.0]), np.array([0, 0, 1])
    assert ndcg(labels, np.zeros(3), groups) == 1.0
    assert ndcg(np.zeros(3), np.zeros(3), groups) == 0.0
