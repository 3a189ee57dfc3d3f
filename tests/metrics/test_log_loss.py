"""Log loss: as scikit-learn has it, of two classes and of several; hard probabilities."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics as sklearn

from gatehouse.metrics.log_loss import log_loss
from tests.metrics.rows import BINARY


@given(BINARY)
def test_it_agrees_with_sklearn(rows: tuple[Any, Any]) -> None:
    labels, probabilities = rows
    kept = np.clip(probabilities, 1e-15, 1 - 1e-15)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert log_loss(*rows) == pytest.approx(sklearn.log_loss(labels, kept, labels=[0, 1]), rel=1e-9)


@given(st.integers(0, 2**32), st.integers(1, 40), st.integers(2, 5))
def test_several_classes_agree_with_sklearn(seed: int, rows: int, classes: int) -> None:
    draw = np.random.default_rng(seed)
    labels, probabilities = draw.integers(0, classes, rows), draw.dirichlet(np.ones(classes), rows)
    expected = sklearn.log_loss(labels, probabilities, labels=range(classes))
    assert log_loss(labels, probabilities) == pytest.approx(expected, rel=1e-9)


def test_two_columns_say_the_same_as_one() -> None:
    labels, probabilities = np.array([0, 1, 1]), np.array([0.2, 0.4, 0.9])
    assert log_loss(labels, np.column_stack([1 - probabilities, probabilities])) == log_loss(labels, probabilities)


def test_a_certain_mistake_costs_much_but_not_everything() -> None:
    assert 30 < log_loss(np.array([1]), np.array([0.0])) < 40
    assert log_loss(np.array([1]), np.array([1.0])) < 1e-12


def test_a_class_that_the_model_does_not_know_costs_what_a_certain_mistake_does() -> None:
    probabilities = np.array([[0.5, 0.5], [1.0, 0.0]])
    assert log_loss(np.array([2, 2]), probabilities) == log_loss(np.array([1]), np.array([[1.0, 0.0]]))
