"""Tasks: the kind of answer that a model gives, and what follows from it for labels, losses, outputs and metrics."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from gatehouse.metrics.arithmetic import NORMAL, wilson
from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array, Predictions
from gatehouse.runtime.plural import counted

TaskName = Literal["binary", "multiclass", "regression", "ranking"]
Output = Literal["probability", "probabilities", "prediction", "score"]
"""A model's output for a row: the probability of label 1, the probability of each class, a number, or a number of which
only the order within a group of rows counts."""

EXPECTED: dict[Output, str] = {
    "probability": "a number from 0 to 1",
    "probabilities": "numbers from 0 to 1 whose sum is 1",
    "prediction": "a finite number",
    "score": "a finite number",
}
"""The value that a model must give for a row, by the output of its task."""

_MOST_CLASSES = 10_000
_MOST_OUTCOMES = 20
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Level:
    """The level of labels: the mean of a number per row, by which parts, slices and windows are compared.

    The number is the label, or 1 for the most frequent class and else 0.
    """

    title: str
    is_share: bool
    of_most_frequent: bool = False

    def by_row(self, labels: Array, fitted_on: Array) -> Array:
        """The number of each row, shape (rows,); the most frequent class is counted in `fitted_on`."""
        values, counts = np.unique(fitted_on, return_counts=True)
        if not self.of_most_frequent or not len(values):
            return labels
        return np.asarray(labels == values[counts.argmax()], np.float64)

    def of(self, labels: Array, fitted_on: Array) -> tuple[float, float, float]:
        """The level, and the ends of its 95 % interval: Wilson's for a share, else the normal one.

        Args:
            fitted_on: The labels of all rows that are compared, shape (all rows,).
        """
        numbers, rows = self.by_row(labels, fitted_on), len(labels)
        if not rows:
            return math.nan, math.nan, math.nan
        mean = float(numbers.mean())
        if self.is_share:
            return mean, *wilson(mean, rows)
        half = NORMAL * float(numbers.std(ddof=1)) / math.sqrt(rows) if rows > 1 else math.inf
        return mean, mean - half, mean + half


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        losses: Losses that it is trained with, by their names in configuration, and the name of the mean of each.
        output: What a model gives for a row; also the name of the column in tables of predictions.
    """

    name: str
    losses: Mapping[str, str]
    output: Output
    watched: tuple[str, ...]
    label: str
    is_label: Callable[[Array], Array]
    level: Level

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, of which a model gives probabilities."""
        return self.output in ("probability", "probabilities")

    @property
    def counted(self) -> str:
        """The unit of judgement: a `row`, or a whole `group` where only the order within it counts."""
        return "group" if self.output == "score" else "row"

    def lacks(self, labels: Array) -> str:
        """What labels, shape (rows,), lack to be learned from, in words; empty for nothing."""
        if self.output == "probability":
            zeros, ones = (int((labels == value).sum()) for value in (0, 1))
            rows = f"{counted(zeros, 'row')} with label 0 and {ones:,} with label 1"
            return "" if zeros and ones else f"{rows}; expected some of both"
        if len(labels) and labels.min() != labels.max():
            return ""
        rows = f"{counted(len(labels), 'row')} with {counted(min(len(labels), 1), 'distinct label')}"
        return f"{rows}; expected two at least"

    def read(self, predicted: Array, groups: Array | None) -> Predictions:
        """The forms that metrics read, of predictions, shape (rows,) or (rows, classes), and the group of each row."""
        if not self.has_classes:
            return Predictions(predicted, groups=groups if self.output == "score" else None)
        classes = predicted >= 0.5 if self.output == "probability" else predicted.argmax(axis=1)
        return Predictions(predicted, probabilities=predicted, classes=classes)

    def outcomes(self, labels: Array, fitted_on: Array) -> Array:
        """Number of each row's outcome from 0, shape (rows,).

        The outcome is the class itself for two classes, the rank of the class by frequency for several (classes after
        the twentieth are one outcome), and for numbers 1 above their median.

        Args:
            labels: Shape (rows,), without NaN.
            fitted_on: Labels for the frequencies and the median, shape (fitted rows,); if empty, all outcomes are 0.
        """
        if not len(fitted_on):
            return np.zeros(len(labels), np.int64)
        if self.output == "probability":
            return labels.astype(np.int64)
        if self.output == "probabilities":
            values, counts = np.unique(fitted_on, return_counts=True)
            frequent = values[np.argsort(-counts, kind="stable")][:_MOST_OUTCOMES]
            order = np.argsort(frequent)
            at = np.minimum(np.searchsorted(frequent[order], labels), len(frequent) - 1)
            return np.where(frequent[order][at] == labels, order[at], len(frequent)).astype(np.int64)
        median = np.median(fitted_on)
        above = labels > median if (fitted_on > median).any() else labels >= median
        return np.asarray(above, np.int64)


BINARY = Task(
    name="binary",
    losses={"binary": "log_loss"},
    output="probability",
    watched=("roc_auc",),
    label="0 or 1",
    is_label=lambda labels: (labels == 0) | (labels == 1),
    level=Level("label rate", is_share=True),
)
MULTICLASS = Task(
    name="multiclass",
    losses={"multiclass": "log_loss"},
    output="probabilities",
    watched=("accuracy",),
    label=f"whole numbers from 0 to {_MOST_CLASSES - 1}",
    is_label=lambda labels: (labels >= 0) & (labels < _MOST_CLASSES) & (labels == labels.round()),
    level=Level("share of the most frequent class", is_share=True, of_most_frequent=True),
)
REGRESSION = Task(
    name="regression",
    losses={"mse": "mse", "huber": "huber"},
    output="prediction",
    watched=("mae", "mse", "r2"),
    label="finite numbers",
    is_label=lambda labels: abs(labels) < math.inf,
    level=Level("mean label", is_share=False),
)
RANKING = Task(
    name="ranking",
    losses={"pairwise": "pairwise"},
    output="score",
    watched=("ndcg",),
    label="finite numbers from 0 up",
    is_label=lambda labels: (labels >= 0) & (labels < math.inf),
    level=Level("mean label", is_share=False),
)
TASKS = {task.name: task for task in (BINARY, MULTICLASS, REGRESSION, RANKING)}


def declared_task(details: Mapping[str, Any]) -> Task:
    """The task that the manifest of a training set declares among its details; binary if it declares none."""
    return TASKS[details.get("task", BINARY.name)]


def task_of_loss(loss: str) -> Task:
    """The task that a loss trains for. Raises KeyError if there is none."""
    return {name: task for task in TASKS.values() for name in task.losses}[loss]


def are_usable(predicted: Array, output: Output) -> Array:
    """Which predictions, shape (rows,) or (rows, classes), are as in `EXPECTED`, shape (rows,); NaN never is."""
    if output in ("prediction", "score"):
        return np.isfinite(predicted)
    shares: Array = (predicted >= 0) & (predicted <= 1)
    if output == "probability":
        return shares
    return np.asarray(shares.all(axis=1) & (abs(predicted.sum(axis=1) - 1) < _ROUNDING))
