"""Declares a function as a metric of its name: as it is, as a mean over rows, or as one of the order of scores."""

from collections.abc import Callable
from typing import Literal

import numpy as np

from gatehouse.components.metrics.catalogue.metric import Array, Interval, Measure, Metric, OnDraw, Reads


def metric(
    *, title: str, better: Literal["higher", "lower"], tasks: tuple[str, ...], reads: Reads, form: str = ".4f"
) -> Callable[[Measure], Metric]:
    """Declare a function of labels and of what it reads; on draws it measures the drawn rows anew."""

    def declare(function: Measure) -> Metric:
        return Metric(function.__name__, title, better, tasks, reads, form, function)

    return declare


def mean_metric(
    *, title: str, better: Literal["higher", "lower"], tasks: tuple[str, ...], reads: Reads, form: str = ".4f"
) -> Callable[[Callable[..., Array]], Metric]:
    """Declare a function that gives a number for each row, shape (rows,): the metric is their mean, also on draws."""

    def declare(by_row: Callable[..., Array]) -> Metric:
        def mean(*given: Array) -> float:
            return float(np.mean(by_row(*given)))

        def prepare(*given: Array) -> OnDraw:
            numbers = by_row(*given)
            return lambda drawn: float(numbers[drawn].mean())

        return Metric(by_row.__name__, title, better, tasks, reads, form, mean, prepare)

    return declare


def ranked_metric(
    *,
    title: str,
    better: Literal["higher", "lower"],
    tasks: tuple[str, ...],
    form: str = ".4f",
    interval: Interval | None = None,
) -> Callable[[Callable[[Array, Array], float]], Metric]:
    """Declare a function of the order of scores: scores are ranked once, and each draw only counts.

    The function takes the positive rows and all rows at every distinct score, from the highest score down, shape
    (scores,) each. Scores without a row must not change what it gives.
    """

    def declare(of_counts: Callable[[Array, Array], float]) -> Metric:
        def prepare(labels: Array, scores: Array) -> OnDraw:
            distinct, ranks = np.unique(scores, return_inverse=True)
            positive = np.asarray(labels) > 0.5

            def counted(drawn: Array) -> float:
                rows = np.bincount(ranks[drawn], minlength=len(distinct))
                hits = np.bincount(ranks[drawn[positive[drawn]]], minlength=len(distinct))
                return of_counts(hits[::-1], rows[::-1])

            return counted

        def measured(labels: Array, scores: Array) -> float:
            return prepare(labels, scores)(np.arange(len(scores)))

        return Metric(of_counts.__name__, title, better, tasks, "scores", form, measured, prepare, interval)

    return declare
