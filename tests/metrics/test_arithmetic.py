"""Exponential, logistic function, softmax and logarithm: right to the last digits, and monotone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from scipy.special import softmax as softmax_of_scipy

from gatehouse.metrics.arithmetic import logarithm, logistic, softmax


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=50))
def test_the_logistic_function_is_right_to_the_last_digits(margins: list[float]) -> None:
    values = np.array(margins)
    assert logistic(values) == pytest.approx(expit(np.clip(values, -700, 700)), rel=1e-15, abs=0)


def test_the_logistic_function_is_monotone_and_takes_any_shape() -> None:
    margins = np.linspace(-40, 40, 400_001).reshape(-1, 1)
    assert (np.diff(logistic(margins), axis=0) >= 0).all()
    assert logistic(np.array([[-np.inf, np.inf]])).tolist() == [[pytest.approx(0, abs=1e-300), 1.0]]


@given(st.lists(st.tuples(*[st.floats(-1e4, 1e4)] * 3), min_size=1, max_size=20))
def test_the_softmax_is_that_of_scipy(margins: list[tuple[float, ...]]) -> None:
    values = np.array(margins)
    assert softmax(values) == pytest.approx(softmax_of_scipy(values, axis=1), rel=1e-12, abs=1e-300)


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=50))
def test_the_logarithm_is_right_to_the_last_digits(values: list[float]) -> None:
    assert logarithm(np.array(values)) == pytest.approx(np.log(values), rel=1e-15, abs=1e-16)
