"""One number that tells what the labels of some rows are like: what parts, slices and windows are compared by."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatehouse.metrics.arithmetic.intervals import NORMAL, wilson
from gatehouse.metrics.tasks.task import Task

if TYPE_CHECKING:
    from gatehouse.metrics.tasks.task import Array


@dataclass(frozen=True)
class Level:
    """The level of labels: the mean of a number that each row has.

    Attributes:
        title: What reports call it.
        by_row: From labels, shape (rows,), and those that it is fitted on, to the number of each row, shape (rows,).
        is_share: Whether that number is 0 or 1.
    """

    title: str
    by_row: "Callable[[Array, Array], Array]"
    is_share: bool

    def of(self, labels: "Array", fitted_on: "Array") -> tuple[float, float, float]:
        """The level, and the ends of its 95 % interval: Wilson's for a share, else the normal one.

        Args:
            labels: As the task has them, shape (rows,); without rows all three numbers are NaN.
            fitted_on: The labels of all rows that are compared, shape (all rows,).
        """
        rows, count = self.by_row(labels, fitted_on), len(labels)
        if not count:
            return math.nan, math.nan, math.nan
        mean = float(rows.mean())
        if not self.is_share:
            half = NORMAL * float(rows.std(ddof=1)) / math.sqrt(count) if count > 1 else math.inf
            return mean, mean - half, mean + half
        return mean, *wilson(mean, count)


def _plain(labels: "Array", fitted_on: "Array") -> "Array":
    return labels


def _most_frequent(labels: "Array", fitted_on: "Array") -> "Array":
    import numpy as np

    values, counts = np.unique(fitted_on, return_counts=True)
    found: Array = (labels == values[counts.argmax()]).astype(np.float64) if len(values) else labels
    return found


_LEVELS = {
    "binary": Level("label rate", _plain, is_share=True),
    "multiclass": Level("share of the most frequent class", _most_frequent, is_share=True),
    "regression": Level("mean label", _plain, is_share=False),
    "ranking": Level("mean label", _plain, is_share=False),
}


def level_of(task: Task) -> Level:
    """What the labels of a task are described by."""
    return _LEVELS[task.name]
