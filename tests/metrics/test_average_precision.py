"""Average precision: as scikit-learn has it, with ties and one class."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from sklearn import metrics as sklearn
from sklearn.preprocessing import label_binarize

from gatehouse.metrics.average_precision import average_precision
from tests.metrics.rows import BOTH, probabilities_of_classes


@given(BOTH)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert average_precision(*rows) == pytest.approx(sklearn.average_precision_score(*rows), abs=1e-9)


@pytest.mark.parametrize("label", [0, 1])
def test_one_class(label: int) -> None:
    assert average_precision(np.full(4, label), np.array([0.1, 0.2, 0.3, 0.4])) == float(label)


def test_equal_scores_have_the_rate_of_the_labels() -> None:
    assert average_precision(np.array([0, 1, 1, 0]), np.full(4, 0.3)) == 0.5


@given(probabilities_of_classes())
def test_of_several_classes_it_is_the_mean_over_those_that_labels_have(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    found = [average_precision((labels == name).astype(int), probabilities[:, name]) for name in np.unique(labels)]
    assert average_precision(labels, probabilities) == pytest.approx(np.mean(found), abs=1e-9)


@given(probabilities_of_classes())
def test_several_classes_agree_with_sklearn(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    names = np.unique(labels)
    assume(len(names) > 2)
    truths = label_binarize(labels, classes=names)
    expected = sklearn.average_precision_score(truths, probabilities[:, names], average="macro")
    assert average_precision(labels, probabilities) == pytest.approx(expected, abs=1e-9)
