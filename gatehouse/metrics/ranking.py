"""Metrics of rankings: a number per group, and their mean over the groups that have a relevant row."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Unpack

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import About, Array, Metric, OnDraw


@dataclass(frozen=True)
class Rankings:
    """The rows of all groups, group after group, each from its highest score down.

    Rows of equal score have no order, so no metric may depend on which of them comes first.

    Attributes:
        labels: From 0 up, above 0 for a relevant row, shape (rows,).
        group: Number of the group of each row, from 0, ascending, shape (rows,).
        tie: Number of each row's set of rows with equal group and score, from 0, ascending, shape (rows,).
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
        """1 for each relevant row, else 0, shape (rows,)."""
        return np.asarray(self.labels > 0, np.float64)

    def total(self, numbers: Array) -> Array:
        """The sum of numbers of rows over each group, shape (groups,)."""
        return np.bincount(self.group, weights=numbers)

    def of_tie(self, numbers: Array) -> Array:
        """For each row the sum of numbers over the rows of equal score, shape (rows,)."""
        return np.bincount(self.tie, weights=numbers)[self.tie]

    def above(self, numbers: Array) -> Array:
        """For each row the sum of numbers over the rows of its group with a higher score, shape (rows,)."""
        earlier = np.cumsum(numbers) - numbers
        tie, group = (np.flatnonzero(_starts(of))[of] for of in (self.tie, self.group))
        return np.asarray(earlier[tie] - earlier[group])

    def expected(self, numbers: Array) -> Array:
        """The mean of each place over the orders of rows of equal score, shape (rows,)."""
        return self.of_tie(numbers) / self.of_tie(np.ones(len(numbers)))


def _starts(values: Array) -> Array:
    """Whether each value differs from the one before it, shape (rows,)."""
    return np.concatenate([[True], values[1:] != values[:-1]])


def ranking_metric(*, title: str, **about: Unpack[About]) -> Callable[[Callable[[Rankings], Array]], Metric]:
    """Declare a function that returns a number per group, shape (groups,), higher for a better order.

    The metric is their mean over groups with a relevant row, since no order of the others is better or worse; 0.0
    without such a group. Numbers are computed once, and a draw of groups only averages them.
    """

    def declare(by_group: Callable[[Rankings], Array]) -> Metric:
        def prepare(labels: Array, scores: Array, groups: Array) -> OnDraw:
            rankings = Rankings.of(labels, scores, groups)
            counts = rankings.total(rankings.relevant) > 0
            values, rows = by_group(rankings)[counts], np.unique(groups, return_index=True)[1][counts]

            def mean(times: Array) -> float:
                drawn = times[rows]
                return float(np.einsum("i,i", drawn, values) / drawn.sum()) if drawn.any() else 0.0

            return mean

        def measure(labels: Array, scores: Array, groups: Array) -> float:
            return prepare(labels, scores, groups)(np.ones(len(labels)))

        return Metric(by_group.__name__, title, "higher", ("ranking",), "groups", measure, prepare=prepare, **about)

    return declare


def _normalised_gain(rankings: Rankings, most: float = math.inf) -> Array:
    """Discounted gain of the first `most` places over the largest possible one (Jarvelin and Kekalainen 2002).

    Gains are the labels, or their mean among rows of equal score (McSherry and Najork 2008).
    """
    labels = rankings.labels
    ideal = labels[np.lexsort((-labels, rankings.group))]
    kept = (rankings.place <= most) / np.log2(rankings.place + 1.0)
    gained, possible = (rankings.total(gains * kept) for gains in (rankings.expected(labels), ideal))
    return np.divide(gained, possible, out=np.zeros_like(gained), where=possible > 0)


@ranking_metric(title="NDCG")
def ndcg(rankings: Rankings) -> Array:
    """Normalised discounted cumulative gain, in [0, 1]."""
    return _normalised_gain(rankings)


@ranking_metric(title="NDCG@10")
def ndcg_at_10(rankings: Rankings) -> Array:
    """NDCG of the first ten places, in [0, 1]."""
    return _normalised_gain(rankings, most=10)


def _precision_at(rankings: Rankings, places: int) -> Array:
    """Expected relevant rows in the first places over their number, also in a group that has fewer rows."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= places)) / places


@ranking_metric(title="P@1")
def precision_at_1(rankings: Rankings) -> Array:
    """Whether the first row is relevant."""
    return _precision_at(rankings, 1)


@ranking_metric(title="P@5")
def precision_at_5(rankings: Rankings) -> Array:
    """Share of the first five places with a relevant row."""
    return _precision_at(rankings, 5)


@ranking_metric(title="P@10")
def precision_at_10(rankings: Rankings) -> Array:
    """Share of the first ten places with a relevant row."""
    return _precision_at(rankings, 10)


@ranking_metric(title="MAP")
def mean_average_precision(rankings: Rankings) -> Array:
    """The mean over relevant rows of the precision among all rows that score at least as high."""
    relevant, ones = rankings.relevant, np.ones(len(rankings.labels))
    hits, rows = (rankings.above(numbers) + rankings.of_tie(numbers) for numbers in (relevant, ones))
    return rankings.total(relevant * hits / rows) / np.maximum(rankings.total(relevant), 1)


@ranking_metric(title="MRR")
def mean_reciprocal_rank(rankings: Rankings) -> Array:
    """One over the place of the first relevant row; its mean over the orders of rows of equal score.

    Among n rows of equal score, m of them relevant, the first relevant one is at place i in C(n - i, m - 1) of C(n, m)
    orders.
    """
    relevant, ones = rankings.relevant, np.ones(len(rankings.labels))
    n, m, place = rankings.of_tie(ones), rankings.of_tie(relevant), rankings.place - rankings.above(ones)
    first = (rankings.above(relevant) == 0) & (m > 0) & (n - place >= m - 1)
    n, m, place = (numbers[first].astype(np.int64) for numbers in (n, m, place))
    logs = np.array([math.lgamma(number + 1) for number in range(int(n.max(initial=0)) + 1)])

    def log_binomial(total: Array, chosen: Array) -> Array:
        return np.asarray(logs[total] - logs[chosen] - logs[total - chosen])

    chance = np.zeros(len(first))
    chance[first] = np.exp(log_binomial(n - place, m - 1) - log_binomial(n, m))
    return rankings.total(chance / rankings.place)
