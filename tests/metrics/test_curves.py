"""Curves against their definitions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.metrics.classification import roc_auc
from gatehouse.metrics.curves import calibration, histogram, precision_recall, roc
from tests.metrics.test_metrics import BINARY, BOTH


@given(BINARY, st.integers(1, 30))
def test_calibration_has_bins_of_about_equal_size(rows: tuple[Any, Any], bins: int) -> None:
    labels, scores = rows
    predicted, observed, counts = calibration(labels, scores, bins).T
    assert counts.sum() == len(labels)
    assert np.ptp(counts) <= 1
    assert (predicted * counts).sum() == pytest.approx(scores.sum())
    assert (observed * counts).sum() == pytest.approx(labels.sum())


def test_the_histogram_holds_every_row() -> None:
    draw = np.random.default_rng(0)
    bins = histogram(draw.integers(0, 2, 1000), draw.random(1000))
    assert bins[:, 1:].sum(axis=0) == pytest.approx([1, 1])
    assert histogram(np.ones(3), np.array([0.0, 0.5, 1.0]))[:, 1].sum() == 0


@given(BOTH)
def test_precision_and_recall_agree_with_their_definition(rows: tuple[Any, Any]) -> None:
    labels, scores = rows
    recall, precision = precision_recall(labels, scores).T
    for at, threshold in enumerate(np.unique(scores)[::-1]):
        taken = scores >= threshold
        assert precision[at] == pytest.approx(labels[taken].mean())
        assert recall[at] == pytest.approx(labels[taken].sum() / labels.sum())


@given(BOTH)
def test_the_roc_curve_encloses_the_area(rows: tuple[Any, Any]) -> None:
    labels, scores = rows
    false_positive, true_positive, thresholds = roc(labels, scores).T
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(roc_auc(labels, scores))
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    for at, threshold in enumerate(thresholds):
        assert true_positive[at] == pytest.approx(np.mean(scores[labels == 1] >= threshold))
        assert false_positive[at] == pytest.approx(np.mean(scores[labels == 0] >= threshold))
