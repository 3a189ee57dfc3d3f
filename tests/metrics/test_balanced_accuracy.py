"""Balanced accuracy: as scikit-learn has it, also where a class is predicted that no label has."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.balanced_accuracy import balanced_accuracy
from tests.metrics.rows import CLASSES, TRUTHS


@given(CLASSES | TRUTHS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert balanced_accuracy(*rows) == pytest.approx(sklearn.balanced_accuracy_score(*rows), abs=1e-9)


def test_a_class_without_a_row_does_not_count() -> None:
    assert balanced_accuracy(np.array([0, 0, 1]), np.array([0, 2, 1])) == 0.75
    assert balanced_accuracy(np.array([1]), np.array([False])) == 0.0
