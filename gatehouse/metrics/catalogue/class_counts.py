"""Metrics of predicted classes: functions of how many rows each class has, and how many were said to be of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Unpack

import numpy as np

from gatehouse.metrics.catalogue.metric import About, Array, Metric


@dataclass(frozen=True)
class ClassCounts:
    """Rows of each class that is among the labels or the predictions, shape (classes,) each.

    Attributes:
        right: Rows of the class that were said to be of it.
        seen: Rows whose label it is.
        said: Rows that were said to be of it.
        positive: Where the class is the positive one of two; None where there are several classes.
    """

    right: Array
    seen: Array
    said: Array
    positive: Array | None

    def average(self, parts: Array, wholes: Array) -> float:
        """Shares of wholes, shape (classes,), 0 where a whole is 0: of the positive class, or the mean of several."""
        shares = parts / np.maximum(wholes, 1)
        return float(shares.mean() if self.positive is None else shares[self.positive].sum())


def class_metric(
    *, title: str, better: Literal["higher", "lower"], tasks: tuple[str, ...], **about: Unpack[About]
) -> Callable[[Callable[[ClassCounts], float]], Metric]:
    """Declare a function of counts by class, which all of these metrics share on a draw."""

    def declare(of_counts: Callable[[ClassCounts], float]) -> Metric:
        def measured(labels: Array, classes: Array) -> float:
            return of_counts(_counted(labels, classes)(np.ones(len(labels))))

        name = of_counts.__name__
        return Metric(name, title, better, tasks, "classes", measured, prepare=_counted, of_counts=of_counts, **about)

    return declare


def _counted(labels: Array, classes: Array) -> Callable[[Array], ClassCounts]:
    """From how often each row was drawn to the counts, by the confusion matrix of the drawn rows.

    Of the matrix only cells that some row is in are kept, so that thousands of classes take no more than the rows do.
    """
    names, numbers = np.unique(np.concatenate([labels, classes]), return_inverse=True)
    cells, cell = np.unique(numbers[: len(labels)] * len(names) + numbers[len(labels) :], return_inverse=True)
    label, said = np.divmod(cells, len(names))

    def counted(times: Array) -> ClassCounts:
        rows = np.bincount(cell, weights=times, minlength=len(cells))
        by_class = np.array(
            [
                np.bincount(of, weights=weights, minlength=len(names))
                for of, weights in ((label, rows * (label == said)), (label, rows), (said, rows))
            ]
        )
        there = by_class[1:].any(axis=0)
        right, seen, are_said = by_class[:, there]
        positive = names[there] == 1 if np.asarray(classes).dtype == bool else None
        return ClassCounts(right, seen, are_said, positive)

    return counted
