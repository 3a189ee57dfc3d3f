"""Classification into several classes: the probability of each."""

from typing import TYPE_CHECKING

from gatehouse.metrics.tasks.task import Task, lacks_variety

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Predictions
    from gatehouse.metrics.tasks.task import Mask

_MOST_CLASSES = 10_000


def _is_label(labels: "Array") -> "Mask":
    found: Mask = (labels >= 0) & (labels < _MOST_CLASSES) & (labels == labels.round())
    return found


def _read(probabilities: "Array", groups: "Array | None") -> "Predictions":
    from gatehouse.metrics.metric import Predictions

    return Predictions(probabilities, probabilities=probabilities, classes=probabilities.argmax(axis=1))


MULTICLASS = Task(
    name="multiclass",
    losses={"multiclass": "log_loss"},
    output="probabilities",
    watched=("accuracy",),
    label=f"whole numbers from 0 to {_MOST_CLASSES - 1}",
    is_label=_is_label,
    lacks=lacks_variety,
    read=_read,
)
