"""Tasks: their labels and levels, how metrics read their predictions, and by which metrics they are judged."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from gatehouse.metrics.arithmetic import NORMAL, wilson
from gatehouse.metrics.catalogue import is_minimized, metrics_for
from gatehouse.metrics.judging import profile_of
from gatehouse.metrics.tasks import BINARY, MULTICLASS, REGRESSION, TASKS, Output, are_usable, task_of_loss

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("task", "right", "wrong"),
    [
        ("binary", [0, 1], [0.5, 2, -1, NAN]),
        ("multiclass", [0, 1, 9_999], [0.5, -1, 10_000, NAN, INF]),
        ("regression", [-1e30, 0, 2.5], [NAN, INF, -INF]),
        ("ranking", [0, 2.5], [-1, NAN, INF]),
    ],
)
def test_labels(task: str, right: list[float], wrong: list[float]) -> None:
    assert TASKS[task].is_label(np.array(right, float)).all()
    assert not TASKS[task].is_label(np.array(wrong, float)).any()
    assert not TASKS[task].lacks(np.array([0.0, 1.0]))
    assert TASKS[task].lacks(np.array([1.0, 1.0])) and TASKS[task].lacks(np.empty(0))


@pytest.mark.parametrize(
    ("output", "right", "wrong"),
    [
        ("probability", [0, 0.5, 1], [-0.1, 1.1, NAN]),
        ("probabilities", [[0.5, 0.5], [0, 1]], [[0.5, 0.4], [1.5, -0.5], [NAN, 1]]),
        ("prediction", [-5.0], [NAN, INF]),
        ("score", [-5.0], [NAN, INF]),
    ],
)
def test_outputs(output: Output, right: list[float], wrong: list[float]) -> None:
    assert are_usable(np.array(right, float), output).all() and not are_usable(np.array(wrong, float), output).any()


def test_the_predicted_class_is_the_likeliest() -> None:
    assert BINARY.read(np.array([0.2, 0.5, 0.8]), None).form("classes").tolist() == [False, True, True]
    several = MULTICLASS.read(np.array([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]]), None)
    assert several.form("classes").tolist() == [1, 0]


@pytest.mark.parametrize("task", TASKS)
def test_losses_and_judging(task: str) -> None:
    profile, offered = profile_of(TASKS[task]), metrics_for(task)
    assert {*TASKS[task].watched, profile.objective, *profile.leakage_alarm, *profile.slices} <= set(offered)
    assert {task_of_loss(loss).name for loss in TASKS[task].losses} == {task}


def test_metrics_and_losses_have_a_direction() -> None:
    assert all(is_minimized(name) for name in ("log_loss", "huber", "pairwise", "mse", "brier"))
    assert not any(is_minimized(name) for name in ("roc_auc", "ndcg", "r2", "accuracy"))


def test_the_level_of_classes_is_a_share_with_the_interval_of_wilson() -> None:
    labels, no_rows = np.array([0.0, 1.0, 1.0]), np.empty(0)
    assert BINARY.level.of(labels, no_rows) == (labels.mean(), *wilson(labels.mean(), 3))
    all_labels = np.array([2.0, 2.0, 2.0, 1.0, 0.0])
    assert MULTICLASS.level.of(np.array([1.0, 1.0, 2.0, 0.0]), all_labels)[0] == 0.25
    assert all(np.isnan(task.level.of(no_rows, no_rows)).all() for task in TASKS.values())


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_the_level_of_numbers_is_a_mean_with_the_normal_interval(labels: list[float]) -> None:
    values = np.array(labels)
    expected = norm.interval(0.95, values.mean(), values.std(ddof=1) / np.sqrt(len(values)) or 1e-300)
    assert REGRESSION.level.of(values, values)[1:] == pytest.approx(expected, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize(
    ("task", "labels", "fitted_on", "expected"),
    [
        ("binary", [0, 1, 0], [1], [0, 1, 0]),
        ("multiclass", [7, 3, 3, 5], [7, 3, 3, 5, 5, 5], [2, 1, 1, 0]),
        ("multiclass", [3, 9], [3, 3], [0, 1]),
        ("multiclass", [18, 19, 20, 29], np.repeat(range(30), range(30, 0, -1)), [18, 19, 20, 20]),
        ("regression", [1, 2, 3, 4], [1, 2, 3, 4], [0, 0, 1, 1]),
        ("regression", [1, 5, 5], [5, 5, 1], [0, 1, 1]),  # No number is above the median.
        ("ranking", [0, 0, 0, 1], [0, 0, 0, 1], [0, 0, 0, 1]),
        ("regression", [1, 2], [], [0, 0]),
    ],
)
def test_outcomes(task: str, labels: list[float], fitted_on: list[float], expected: list[int]) -> None:
    assert TASKS[task].outcomes(np.array(labels, float), np.array(fitted_on, float)).tolist() == expected


@settings(max_examples=100)
@example((11, 11), 0.95)
@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.floats(0.5, 0.999))
def test_the_interval_of_a_share_is_wilsons(hits: tuple[int, int], level: float) -> None:
    expected = binomtest(*hits).proportion_ci(level, method="wilson")
    result = wilson(hits[0] / hits[1], hits[1], norm.ppf((1 + level) / 2))
    assert result == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert 0 <= result[0] <= hits[0] / hits[1] <= result[1] <= 1


def test_without_a_level_it_is_that_of_95_percent() -> None:
    assert norm.ppf(0.975) == pytest.approx(NORMAL, abs=1e-15)
