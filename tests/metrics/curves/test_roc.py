"""The ROC curve: its points are what thresholds take, and it encloses the area."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.curves.roc import roc
from gatehouse.metrics.roc_auc import roc_auc
from tests.metrics.rows import BOTH


@given(BOTH)
def test_the_curve_encloses_the_area(rows: tuple[Any, Any]) -> None:
    labels, scores = rows
    false_positive, true_positive, thresholds = roc(labels, scores).T
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(roc_auc(labels, scores))
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    for at, threshold in enumerate(thresholds):
        assert true_positive[at] == pytest.approx(np.mean(scores[labels == 1] >= threshold))
        assert false_positive[at] == pytest.approx(np.mean(scores[labels == 0] >= threshold))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_gives_finite_points(label: int) -> None:
    assert np.isfinite(roc(np.full(4, label), np.array([0.1, 0.2, 0.3, 0.4]))).all()
