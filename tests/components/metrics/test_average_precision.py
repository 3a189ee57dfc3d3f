"""Average precision: as scikit-learn has it, with ties and one class."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.components.metrics.average_precision import average_precision
from tests.components.metrics.rows import BOTH


@given(BOTH)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert average_precision(*rows) == pytest.approx(sklearn.average_precision_score(*rows), abs=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(label: int) -> None:
    assert average_precision(np.full(4, label), np.array([0.1, 0.2, 0.3, 0.4])) == float(label)


def test_equal_scores_have_the_rate_of_the_labels() -> None:
    assert average_precision(np.array([0, 1, 1, 0]), np.full(4, 0.3)) == 0.5
