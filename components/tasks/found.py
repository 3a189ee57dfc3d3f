"""All tasks, by name and by the loss that trains for them."""

from gatehouse.components.tasks.binary import BINARY
from gatehouse.components.tasks.multiclass import MULTICLASS
from gatehouse.components.tasks.ranking import RANKING
from gatehouse.components.tasks.regression import REGRESSION
from gatehouse.components.tasks.task import Judging, Task
from gatehouse.errors import ConfigurationError

TASKS = {task.name: task for task in (BINARY, MULTICLASS, REGRESSION, RANKING)}


def task_of_loss(loss: str) -> Task:
    """The task that a loss trains for. Raises KeyError where none does."""
    return {name: task for task in TASKS.values() for name in task.losses}[loss]


def judging_of(task: Task) -> Judging:
    """How models of a task are judged.

    Raises:
        ConfigurationError: if evaluation and gate do not judge it.
    """
    if task.judging is None:
        judged = ", ".join(each.name for each in TASKS.values() if each.judging)
        raise ConfigurationError(
            f"Evaluation and gate judge models of the task {judged}, not of {task.name}. The stage `train` alone takes "
            "every task, in a pipeline of your own."
        )
    return task.judging
