"""The precision-recall curve: as its definition has it."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.curves.precision_recall import precision_recall
from tests.metrics.rows import BOTH


@given(BOTH)
def test_precision_and_recall_agree_with_their_definition(rows: tuple[Any, Any]) -> None:
    labels, scores = rows
    recall, precision = precision_recall(labels, scores).T
    for at, threshold in enumerate(np.unique(scores)[::-1]):
        taken = scores >= threshold
        assert precision[at] == pytest.approx(labels[taken].mean())
        assert recall[at] == pytest.approx(labels[taken].sum() / labels.sum())


def test_without_a_positive_row_recall_is_0() -> None:
    assert precision_recall(np.zeros(3), np.array([0.1, 0.2, 0.3])).tolist() == [[0, 0]] * 3
