"""A task: the rules of its labels, its losses and metrics, and how its models are judged."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gatehouse.components.metrics.catalogue.metric import Predictions

    Array = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]


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


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: As metrics and configuration write it.
        losses: Losses that it is trained with, as configuration writes them, and what the mean of each is called.
        watched: Metrics that training measures after every epoch, beside the loss.
        label: What a label must be, in words.
        is_label: Which labels can be learned from, shape (rows,).
        lacks: What the labels of a part lack to be learned from, in words; empty for nothing.
        read: From what a model predicts, shape (rows,) or (rows, classes), and the group of each row, to the forms
            that metrics read.
        judging: How models are judged; None where evaluation and gate do not judge this task.
    """

    name: str
    losses: Mapping[str, str]
    watched: tuple[str, ...]
    label: str
    is_label: "Callable[[Array], Mask]"
    lacks: "Callable[[Array], str]"
    read: "Callable[[Array, Array | None], Predictions]"
    judging: Judging | None = None


def lacks_variety(labels: "Array") -> str:
    """What labels lack of which any two must differ, in words."""
    if len(labels) and labels.min() != labels.max():
        return ""
    return f"{len(labels)} rows with {min(len(labels), 1)} different labels; expected two at least"
