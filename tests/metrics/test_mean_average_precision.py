"""Mean average precision: the mean of scikit-learn's over groups with a relevant row."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.mean_average_precision import mean_average_precision
from tests.metrics.rows import RANKINGS


@given(RANKINGS)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any, Any]) -> None:
    labels, scores, groups = rows
    found = [(labels[groups == group] > 0, scores[groups == group]) for group in np.unique(groups)]
    expected = [sklearn.average_precision_score(*each) for each in found if each[0].any()]
    assert mean_average_precision(*rows) == pytest.approx(np.mean(expected) if expected else 0.0, abs=1e-9)


def test_a_value_worked_out_by_hand() -> None:
    labels, scores, groups = np.array([0, 2, 0, 1, 1]), np.array([4.0, 3, 2, 1, 0]), np.array([3, 3, 3, 3, 9])
    assert mean_average_precision(labels, scores, groups) == pytest.approx(((1 / 2 + 2 / 4) / 2 + 1) / 2)
