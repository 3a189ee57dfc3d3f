"""A task: the rules of its labels, its losses and metrics."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from gatehouse.runtime.counting import counted

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from gatehouse.metrics.metric import Predictions

    Array = npt.NDArray[Any]
    Mask = npt.NDArray[np.bool_]

TaskName = Literal["binary", "multiclass", "regression", "ranking"]
Output = Literal["probability", "probabilities", "prediction", "score"]
"""What a model gives for a row: the probability of label 1, that of each class, a number, or a number of which only the
order within a group of rows counts."""


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        name: As metrics and configuration write it.
        losses: Losses that it is trained with, as configuration writes them, and what the mean of each is called.
        output: What a model gives for a row, as tables of predictions name its column.
        watched: Metrics that training measures after every epoch, beside the loss.
        label: What a label must be, in words.
        is_label: Which labels can be learned from, shape (rows,).
        lacks: What the labels of a part lack to be learned from, in words; empty for nothing.
        read: From what a model predicts, shape (rows,) or (rows, classes), and the group of each row, to the forms
            that metrics read.
    """

    name: str
    losses: Mapping[str, str]
    output: Output
    watched: tuple[str, ...]
    label: str
    is_label: "Callable[[Array], Mask]"
    lacks: "Callable[[Array], str]"
    read: "Callable[[Array, Array | None], Predictions]"

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, of which a model gives probabilities."""
        return self.output in ("probability", "probabilities")

    @property
    def counted(self) -> str:
        """What is judged as one: a `row`, or a whole `group` where only the order within it counts."""
        return "group" if self.output == "score" else "row"


def lacks_variety(labels: "Array") -> str:
    """What labels, shape (rows,), lack of which any two must differ, in words."""
    if len(labels) and labels.min() != labels.max():
        return ""
    return f"{counted(len(labels), 'row')} with {counted(min(len(labels), 1), 'distinct label')}; expected two at least"
