"""Tasks: which labels they can learn from, and how metrics read their predictions."""

import numpy as np
import pytest

from gatehouse.metrics.catalogue import metrics_for
from gatehouse.metrics.tasks.direction import is_minimized
from gatehouse.metrics.tasks.found import TASKS, task_of_loss
from gatehouse.metrics.tasks.judging import judging_of

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


@pytest.mark.parametrize("task", TASKS)
def test_what_labels_lack_is_said(task: str) -> None:
    assert TASKS[task].lacks(np.array([0.0, 1.0])) == ""
    binary = task == "binary"
    assert TASKS[task].lacks(np.array([1.0, 1.0])).startswith("0 rows with label 0" if binary else "2 rows with 1")
    assert TASKS[task].lacks(np.empty(0)).startswith("0 rows with label 0" if binary else "0 rows with 0")


def test_each_loss_trains_for_one_task() -> None:
    losses = [loss for task in TASKS.values() for loss in task.losses]
    assert len(losses) == len(set(losses))
    assert {task_of_loss(loss).name for loss in losses} == set(TASKS)


def test_classes_are_the_likelier_ones() -> None:
    binary = TASKS["binary"].read(np.array([0.2, 0.5, 0.8]), None)
    assert binary.classes.tolist() == [False, True, True]
    several = TASKS["multiclass"].read(np.array([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2]]), None)
    assert several.classes.tolist() == [1, 0]


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_is_judged_by_are_metrics_of_it(name: str) -> None:
    judging, offered = judging_of(TASKS[name]), metrics_for(name)
    assert {judging.objective, *judging.leakage_alarm, *judging.slices} <= set(offered)
    assert not judging.row_loss or offered[judging.row_loss].by_row


def test_metrics_and_losses_have_a_direction() -> None:
    assert [is_minimized(name) for name in ("log_loss", "huber", "pairwise", "mse", "brier")] == [True] * 5
    assert [is_minimized(name) for name in ("roc_auc", "ndcg", "r2", "accuracy")] == [False] * 4
