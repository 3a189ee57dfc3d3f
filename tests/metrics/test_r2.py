"""The coefficient of determination: as scikit-learn has it, also of labels that are all equal."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from sklearn import metrics as sklearn

from gatehouse.metrics.r2 import r2
from tests.metrics.rows import NUMBERS


@given(NUMBERS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    # Of labels that hardly differ, or not at all, the sum of squares is scikit-learn's rounding error.
    assume(np.ptp(rows[0]) > 1e-6)
    assert r2(*rows) == pytest.approx(sklearn.r2_score(*rows), rel=1e-9, abs=1e-9)


def test_labels_that_are_all_equal() -> None:
    assert r2(np.ones(3), np.ones(3)) == 1.0
    assert r2(np.ones(3), np.array([1.0, 1.0, 2.0])) == 0.0


def test_equal_labels_that_their_mean_does_not_meet() -> None:
    labels = np.full(3, 0.1)
    assert np.mean(labels) != 0.1
    assert r2(labels, np.full(3, 0.2)) == 0.0
