"""The Brier score: as scikit-learn has it."""

from typing import Any

import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.components.metrics.brier import brier
from tests.components.metrics.rows import BOTH


@given(BOTH)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert brier(*rows) == pytest.approx(sklearn.brier_score_loss(*rows), abs=1e-9)
