"""The level of labels of each task, and its intervals beside those of SciPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from gatehouse.metrics.arithmetic.intervals import wilson
from gatehouse.metrics.tasks.found import TASKS
from gatehouse.metrics.tasks.level import level_of


def test_the_interval_of_a_label_rate_is_wilsons() -> None:
    labels = np.array([0.0, 1.0, 1.0])
    assert level_of(TASKS["binary"]).of(labels, np.empty(0)) == (labels.mean(), *wilson(labels.mean(), 3))


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_the_interval_of_a_mean_label_is_the_normal_one(labels: list[float]) -> None:
    values = np.array(labels)
    expected = norm.interval(0.95, values.mean(), values.std(ddof=1) / np.sqrt(len(values)) or 1e-300)
    assert level_of(TASKS["regression"]).of(values, values)[1:] == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_the_level_of_classes_is_the_share_of_the_class_that_is_most_frequent_overall() -> None:
    every = np.array([2.0, 2.0, 2.0, 1.0, 0.0])
    assert level_of(TASKS["multiclass"]).of(np.array([1.0, 1.0, 2.0, 0.0]), every)[0] == 0.25


@pytest.mark.parametrize("name", TASKS)
def test_no_rows_have_no_level(name: str) -> None:
    assert np.isnan(level_of(TASKS[name]).of(np.empty(0), np.empty(0))).all()
