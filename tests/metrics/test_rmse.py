"""Root mean squared error: as scikit-learn has it."""

from typing import Any

import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.rmse import rmse
from tests.metrics.rows import NUMBERS


@given(NUMBERS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert rmse(*rows) == pytest.approx(sklearn.root_mean_squared_error(*rows), rel=1e-9, abs=1e-9)
