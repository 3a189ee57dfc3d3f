"""Accuracy: as scikit-learn has it."""

from typing import Any

import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.accuracy import accuracy
from tests.metrics.rows import CLASSES


@given(CLASSES)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert accuracy(*rows) == pytest.approx(sklearn.accuracy_score(*rows), rel=1e-9, abs=1e-9)
