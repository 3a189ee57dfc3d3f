"""How evaluation and gate judge the models of each task; apart from the tasks, as nothing that trains depends on it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatehouse.components.tasks.binary import BINARY
from gatehouse.components.tasks.task import Task
from gatehouse.errors import ConfigurationError

if TYPE_CHECKING:
    from gatehouse.components.metrics.catalogue.metric import Array
    from gatehouse.components.tasks.task import Mask


@dataclass(frozen=True)
class Judging:
    """How evaluation and gate judge the models of a task.

    Attributes:
        objective: The metric that a candidate must beat baseline and champion in, where a policy names none.
        leakage_alarm: Values of metrics that are too good to be true, where a policy names none.
        slices: Values of metrics that every judged slice must reach, where a policy names none.
        baseline: The kind of model that a candidate is compared with.
        curves: Names of the curves that the evaluation holds, which are files of the room of metrics.
        prediction: What a model must give for a row, in words.
        is_prediction: Which of a model's predictions are that, shape (rows,).
    """

    objective: str
    leakage_alarm: Mapping[str, float]
    slices: Mapping[str, float]
    baseline: str
    curves: tuple[str, ...]
    prediction: str
    is_prediction: "Callable[[Array], Mask]"


def _is_probability(predicted: "Array") -> "Mask":
    return (predicted >= 0) & (predicted <= 1)


_JUDGED = {
    BINARY.name: Judging(
        objective="log_loss",
        leakage_alarm={"roc_auc": 0.80},
        slices={"roc_auc": 0.5},
        baseline="logistic_regression",
        curves=("roc", "precision_recall", "calibration", "histogram"),
        prediction="a number from 0 to 1",
        is_prediction=_is_probability,
    ),
}


def judging_of(task: Task) -> Judging:
    """How models of a task are judged.

    Raises:
        ConfigurationError: if evaluation and gate do not judge it.
    """
    if task.name not in _JUDGED:
        raise ConfigurationError(
            f"Evaluation and gate judge models of the task {', '.join(_JUDGED)}, not of {task.name}. The stage `train` "
            "alone takes every task, in a pipeline of your own."
        )
    return _JUDGED[task.name]
