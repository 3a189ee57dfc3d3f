"""ROC AUC: as scikit-learn has it, with ties and one class."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from sklearn import metrics as sklearn
from sklearn.preprocessing import label_binarize

from gatehouse.metrics.roc_auc import roc_auc
from tests.metrics.rows import BOTH, probabilities_of_classes


@given(BOTH)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    assert roc_auc(*rows) == pytest.approx(sklearn.roc_auc_score(*rows), abs=1e-9)


@given(BOTH)
def test_swapping_the_labels_mirrors_it(rows: tuple[Any, Any]) -> None:
    labels, scores = rows
    assert roc_auc(1 - labels, scores) == pytest.approx(1 - roc_auc(labels, scores))


@pytest.mark.parametrize("label", [0, 1])
def test_one_class_has_an_area_by_convention_and_no_warning(label: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert roc_auc(np.full(4, label), np.array([0.1, 0.2, 0.3, 0.4])) == 0.5


def test_equal_scores_tell_nothing() -> None:
    assert roc_auc(np.array([0, 1, 1, 0]), np.full(4, 0.3)) == 0.5


@given(probabilities_of_classes())
def test_of_several_classes_it_is_the_mean_over_those_that_labels_have(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    found = [roc_auc((labels == name).astype(int), probabilities[:, name]) for name in np.unique(labels)]
    assert roc_auc(labels, probabilities) == pytest.approx(np.mean(found), abs=1e-9)


@given(probabilities_of_classes())
def test_several_classes_agree_with_sklearn(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    names = np.unique(labels)
    assume(len(names) > 2)
    expected = sklearn.roc_auc_score(label_binarize(labels, classes=names), probabilities[:, names], average="macro")
    assert roc_auc(labels, probabilities) == pytest.approx(expected, abs=1e-9)
