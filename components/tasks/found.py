"""All tasks, by name and by the loss that trains for them."""

from gatehouse.components.tasks.binary import BINARY
from gatehouse.components.tasks.multiclass import MULTICLASS
from gatehouse.components.tasks.ranking import RANKING
from gatehouse.components.tasks.regression import REGRESSION
from gatehouse.components.tasks.task import Task

TASKS = {task.name: task for task in (BINARY, MULTICLASS, REGRESSION, RANKING)}


def task_of_loss(loss: str) -> Task:
    """The task that a loss trains for. Raises KeyError where none does."""
    return {name: task for task in TASKS.values() for name in task.losses}[loss]
