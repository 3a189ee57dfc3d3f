"""Declares a function as a metric of its name: as it is, as a mean over rows, or as one of the order of scores."""

from collections.abc import Callable
from typing import Any, Literal, Unpack

import numpy as np

from gatehouse.metrics.catalogue.metric import About, Array, Counted, Measure, Metric, OnDraw, Reads

_Counts = list[tuple[Array, Array]]


def metric(
    *,
    title: str,
    better: Literal["higher", "lower"],
    tasks: tuple[str, ...],
    reads: Reads,
    prepare: Callable[..., Counted] | None = None,
    of_counts: Callable[[Any], float] = float,
    gaps: Callable[[Any], Array] | None = None,
    groups: int = 0,
    has_interval: bool = True,
    **about: Unpack[About],
) -> Callable[[Measure], Metric]:
    """Declare a function of labels and of what it reads; on draws it measures them anew, or what `prepare` counts."""

    def declare(function: Measure) -> Metric:
        return Metric(
            name=function.__name__,
            title=title,
            better=better,
            tasks=tasks,
            reads=reads,
            function=function,
            prepare=prepare,
            of_counts=of_counts,
            gaps=gaps,
            groups=groups,
            has_interval=has_interval,
            **about,
        )

    return declare


def mean_metric(
    *,
    title: str,
    better: Literal["higher", "lower"],
    tasks: tuple[str, ...],
    reads: Reads,
    root: bool = False,
    **about: Unpack[About],
) -> Callable[[Callable[..., Array]], Metric]:
    """Declare a function that gives a number for each row, shape (rows,): the metric is their mean, or its root."""

    def declare(by_row: Callable[..., Array]) -> Metric:
        def of_mean(mean: float) -> float:
            return float(np.sqrt(mean) if root else mean)

        def measured(*given: Array) -> float:
            return of_mean(by_row(*given).mean())

        def prepare(*given: Array) -> OnDraw:
            numbers = np.asarray(by_row(*given), np.float64)
            # Without BLAS, whose threads take longer to meet than the sum takes, and whose bits are the processor's.
            return lambda times: of_mean(float(np.einsum("i,i", times, numbers)) / times.sum())

        return Metric(by_row.__name__, title, better, tasks, reads, measured, prepare=prepare, by_row=by_row, **about)

    return declare


def ranked_metric(
    *,
    title: str,
    better: Literal["higher", "lower"],
    tasks: tuple[str, ...],
    **about: Unpack[About],
) -> Callable[[Callable[[Array, Array], float]], Metric]:
    """Declare a function of the order of scores: they are sorted once, and each draw only counts, for all of these.

    The function takes the positive rows and all rows at every distinct score, from the highest score down, shape
    (scores,) each. Neighbouring scores without a positive row may be taken together, and scores without any row must
    not change what it gives. Of several classes, with scores of shape (rows, classes), the metric is its mean over the
    classes that labels have, each against the rest.
    """

    def declare(of_counts: Callable[[Array, Array], float]) -> Metric:
        def averaged(found: _Counts) -> float:
            return float(np.mean([of_counts(hits, rows) for hits, rows in found]))

        def measured(labels: Array, scores: Array) -> float:
            return averaged(_counted(labels, scores)(np.ones(len(scores))))

        name = of_counts.__name__
        return Metric(name, title, better, tasks, "scores", measured, prepare=_counted, of_counts=averaged, **about)

    return declare


def _counted(labels: Array, scores: Array) -> Callable[[Array], _Counts]:
    """From how often each row was drawn to counts of the positive class, or of each that drawn labels have."""
    if scores.ndim == 1:
        counted = _counter(np.asarray(labels) > 0.5, scores)
        return lambda times: [counted(times)]
    classes = [_counter(labels == name, _scores_of(int(name), scores)) for name in np.unique(labels)]
    return lambda times: [found for counted in classes if (found := counted(times))[0].any()]


def _counter(positive: Array, scores: Array) -> Callable[[Array], tuple[Array, Array]]:
    """From how often each row was drawn to what a function of counts takes."""
    order = np.argsort(-scores, kind="stable")
    scores, positive = scores[order], positive[order]
    first = np.flatnonzero(np.concatenate([[True], scores[1:] != scores[:-1]]))
    hit = np.logical_or.reduceat(positive, first)
    first = first[np.concatenate([[True], hit[1:] | hit[:-1]])]

    def counted(times: Array) -> tuple[Array, Array]:
        rows = times[order]
        return np.add.reduceat(rows * positive, first), np.add.reduceat(rows, first)

    return counted


def _scores_of(name: int, scores: Array) -> Array:
    """The scores of a class; all equal for one that the model does not know."""
    return np.asarray(scores[:, name]) if name < scores.shape[1] else np.zeros(len(scores))
