"""All tasks, by name and by the loss that trains for them."""

from collections.abc import Mapping
from typing import Any

from gatehouse.metrics.tasks.binary import BINARY
from gatehouse.metrics.tasks.multiclass import MULTICLASS
from gatehouse.metrics.tasks.ranking import RANKING
from gatehouse.metrics.tasks.regression import REGRESSION
from gatehouse.metrics.tasks.task import Task

TASKS = {task.name: task for task in (BINARY, MULTICLASS, REGRESSION, RANKING)}


def declared_task(details: Mapping[str, Any]) -> Task:
    """The task that the manifest of a training set declares among its details: binary where it declares none."""
    return TASKS[details.get("task", BINARY.name)]


def task_of_loss(loss: str) -> Task:
    """The task that a loss trains for. Raises KeyError where none does."""
    return {name: task for task in TASKS.values() for name in task.losses}[loss]
