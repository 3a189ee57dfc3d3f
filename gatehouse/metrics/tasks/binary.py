"""Binary classification: the probability of a label of 1."""

from typing import TYPE_CHECKING

from gatehouse.metrics.tasks.task import Task
from gatehouse.runtime.counting import counted

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Predictions
    from gatehouse.metrics.tasks.task import Mask


def _is_label(labels: "Array") -> "Mask":
    found: Mask = (labels == 0) | (labels == 1)
    return found


def _lacks(labels: "Array") -> str:
    zeros, ones = (int((labels == value).sum()) for value in (0, 1))
    found = f"{counted(zeros, 'row')} with label 0 and {ones:,} with label 1"
    return "" if zeros and ones else f"{found}; expected some of both"


def _read(probabilities: "Array", groups: "Array | None") -> "Predictions":
    from gatehouse.metrics.metric import Predictions

    return Predictions(probabilities, probabilities=probabilities, classes=probabilities >= 0.5)


BINARY = Task(
    name="binary",
    losses={"binary": "log_loss"},
    output="probability",
    watched=("roc_auc",),
    label="0 or 1",
    is_label=_is_label,
    lacks=_lacks,
    read=_read,
)
