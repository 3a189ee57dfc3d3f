"""The Brier score: as scikit-learn has it, of two classes and of several."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.brier import brier
from tests.metrics.rows import BOTH, probabilities_of_classes


@given(BOTH)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert brier(*rows) == pytest.approx(sklearn.brier_score_loss(*rows), abs=1e-9)


@given(probabilities_of_classes())
def test_several_classes_agree_with_sklearn(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    names = np.arange(probabilities.shape[1])
    # With two classes theirs counts one of the two columns.
    expected = sklearn.brier_score_loss(labels, probabilities, labels=names, scale_by_half=False)
    assert brier(labels, probabilities) == pytest.approx(expected, abs=1e-9)
