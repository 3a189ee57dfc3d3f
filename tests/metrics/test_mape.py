"""Mean absolute percentage error: as scikit-learn has it, of rows whose label is not 0."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.mape import mape
from tests.metrics.rows import NUMBERS


@given(NUMBERS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    told = [column[np.abs(rows[0]) >= np.finfo(np.float64).eps] for column in rows]
    expected = sklearn.mean_absolute_percentage_error(*told) if len(told[0]) else 1.0
    assert mape(*rows) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_it_is_a_share_of_the_label_whatever_its_sign() -> None:
    assert mape(np.array([10.0, -10.0]), np.array([9.0, -12.0])) == pytest.approx(0.15)


@pytest.mark.parametrize("said", [0.0, 0.1])
def test_a_label_of_zero_is_left_out(said: float) -> None:
    assert mape(np.array([0.0, 2.0]), np.array([said, 1.0])) == 0.5
    assert mape(np.array([0.0, 0.0]), np.array([said, 1.0])) == 1.0
