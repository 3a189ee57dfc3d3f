"""The Matthews correlation coefficient: as scikit-learn has it; 0 where nothing varies; no overflow."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.mcc import mcc
from tests.metrics.rows import CLASSES, TRUTHS


@given(CLASSES | TRUTHS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert mcc(*rows) == pytest.approx(sklearn.matthews_corrcoef(*rows), abs=1e-9)


def test_one_class_in_labels_or_predictions_gives_0() -> None:
    assert mcc(np.array([1, 1]), np.array([True, True])) == mcc(np.array([0, 1]), np.array([True, True])) == 0.0


def test_a_million_rows_do_not_overflow() -> None:
    labels = np.repeat([0, 1], 500_000)
    assert mcc(labels, labels == 1) == 1.0
    assert mcc(labels, labels == 0) == -1.0
