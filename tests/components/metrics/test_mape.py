"""Mean absolute percentage error: as scikit-learn has it, also of labels at zero."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.components.metrics.mape import mape
from tests.components.metrics.rows import NUMBERS


@given(NUMBERS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert mape(*rows) == pytest.approx(sklearn.mean_absolute_percentage_error(*rows), rel=1e-9, abs=1e-9)


def test_it_is_a_share_of_the_label_whatever_its_sign() -> None:
    assert mape(np.array([10.0, -10.0]), np.array([9.0, -12.0])) == pytest.approx(0.15)


def test_a_label_of_zero_that_is_missed_outweighs_everything_and_one_that_is_met_costs_nothing() -> None:
    assert mape(np.array([0.0, 1.0]), np.array([0.1, 1.0])) > 1e14
    assert mape(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == 0.0
