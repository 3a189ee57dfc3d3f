"""Precision: as scikit-learn has it, of the positive class and as the mean over several."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.precision import precision
from tests.metrics.rows import CLASSES, TRUTHS


@given(TRUTHS)
def test_it_agrees_with_sklearn_on_two_classes(rows: tuple[Any, Any]) -> None:
    labels, classes = rows
    assert precision(*rows) == pytest.approx(
        sklearn.precision_score(labels, classes.astype(int), zero_division=0), abs=1e-9
    )


@given(CLASSES)
def test_it_agrees_with_sklearn_on_several_classes(rows: tuple[Any, Any]) -> None:
    expected = sklearn.precision_score(*rows, average="macro", zero_division=0)
    assert precision(*rows) == pytest.approx(expected, abs=1e-9)


def test_without_a_row_that_is_predicted_positive_it_is_0() -> None:
    assert precision(np.array([0, 1]), np.array([False, False])) == 0.0
    assert precision(np.array([0]), np.array([False])) == 0.0


def test_a_class_in_predictions_alone_and_one_in_labels_alone_count() -> None:
    assert precision(np.array([0, 0, 1]), np.array([0, 2, 0])) == pytest.approx((1 / 2 + 0 + 0) / 3)
