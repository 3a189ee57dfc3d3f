"""Metrics of rankings: a number for each group, and the metric is the mean over groups with something to find."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

import numpy as np

from gatehouse.metrics.catalogue.metric import About, Array, Metric, OnDraw


@dataclass(frozen=True)
class Rankings:
    """The rows of all groups, group after group, each from its highest score down.

    Which of several rows of equal score stands first is chance, so that no metric may depend on it.

    Attributes:
        labels: From 0 up, above 0 for a relevant row, shape (rows,).
        group: Number of the group of each row, from 0, ascending, shape (rows,).
        place: Of each row in its group, from 1, shape (rows,).
        tie: Number of the rows of one group and score that each row is among, from 0, ascending, shape (rows,).
    """

    labels: Array
    group: Array
    place: Array
    tie: Array

    @classmethod
    def of(cls, labels: Array, scores: Array, groups: Array) -> "Rankings":
        """Sort rows given in any order, all of shape (rows,)."""
        group = np.unique(groups, return_inverse=True)[1]
        order = np.lexsort((-np.asarray(scores, np.float64), group))
        group, scores = group[order], scores[order]
        starts = _starts(group)
        place = np.arange(len(order)) - np.flatnonzero(starts)[group] + 1
        return cls(np.asarray(labels)[order], group, place, np.cumsum(starts | _starts(scores)) - 1)

    @property
    def relevant(self) -> Array:
        """Whether each row is relevant, as 0 or 1, shape (rows,)."""
        return np.asarray(self.labels > 0, np.float64)

    def total(self, numbers: Array) -> Array:
        """The sum over each group of numbers of rows, shape (groups,)."""
        return np.bincount(self.group, weights=numbers)

    def of_tie(self, numbers: Array) -> Array:
        """The sum over the rows of equal score of numbers of rows, for each row, shape (rows,)."""
        return np.bincount(self.tie, weights=numbers)[self.tie]

    def above(self, numbers: Array) -> Array:
        """The sum over the rows of the group with a higher score of numbers of rows, for each row, shape (rows,)."""
        earlier = np.cumsum(numbers) - numbers
        tie, group = (np.flatnonzero(_starts(of))[of] for of in (self.tie, self.group))
        return np.asarray(earlier[tie] - earlier[group])

    def expected(self, numbers: Array) -> Array:
        """What each place has on average over the orders of rows of equal score, shape (rows,)."""
        return self.of_tie(numbers) / self.of_tie(np.ones(len(numbers)))


def ranking_metric(*, title: str, **about: Unpack[About]) -> Callable[[Callable[[Rankings], Array]], Metric]:
    """Declare a function that gives a number for each group, shape (groups,), higher for a better order.

    The metric is the mean over groups that have a relevant row, as no order of the others is better or worse; 0.0 where
    there is no such group. Numbers are taken once, and each draw of groups only averages.
    """

    def declare(by_group: Callable[[Rankings], Array]) -> Metric:
        def numbers(labels: Array, scores: Array, groups: Array) -> Array:
            """The number of each group, shape (groups,); NaN for a group that does not count."""
            rankings = Rankings.of(labels, scores, groups)
            return np.where(rankings.total(rankings.relevant) > 0, by_group(rankings), np.nan)

        def prepare(labels: Array, scores: Array, groups: Array) -> OnDraw:
            found = numbers(labels, scores, groups)
            counts = ~np.isnan(found)
            chosen, found = np.unique(groups, return_index=True)[1][counts], found[counts]

            def mean(times: Array) -> float:
                drawn = times[chosen]
                return float(np.einsum("i,i", drawn, found) / drawn.sum()) if drawn.any() else 0.0

            return mean

        def measured(labels: Array, scores: Array, groups: Array) -> float:
            found = numbers(labels, scores, groups)
            counted = found[~np.isnan(found)]
            return float(counted.mean()) if len(counted) else 0.0

        name, tasks = by_group.__name__, ("ranking",)
        return Metric(name, title, "higher", tasks, "groups", measured, prepare=prepare, by_group=numbers, **about)

    return declare


def _starts(values: Array) -> Array:
    """Whether each value differs from the one before it, shape (rows,)."""
    return np.concatenate([[True], values[1:] != values[:-1]])
