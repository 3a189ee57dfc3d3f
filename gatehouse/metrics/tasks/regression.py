"""Regression: a number."""

from typing import TYPE_CHECKING

from gatehouse.metrics.tasks.task import Task, lacks_variety

if TYPE_CHECKING:
    from gatehouse.metrics.metric import Array, Predictions
    from gatehouse.metrics.tasks.task import Mask


def _is_label(labels: "Array") -> "Mask":
    return abs(labels) < float("inf")


def _read(values: "Array", groups: "Array | None") -> "Predictions":
    from gatehouse.metrics.metric import Predictions

    return Predictions(values)


REGRESSION = Task(
    name="regression",
    losses={"mse": "mse", "huber": "huber"},
    output="prediction",
    watched=("mae", "mse", "r2"),
    label="finite numbers",
    is_label=_is_label,
    lacks=lacks_variety,
    read=_read,
)
