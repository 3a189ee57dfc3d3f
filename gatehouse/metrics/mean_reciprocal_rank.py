"""Mean reciprocal rank of rankings (MRR)."""

import math

import numpy as np

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="MRR")
def mean_reciprocal_rank(rankings: Rankings) -> Array:
    """One over the place of the first relevant row of each group; its mean over the orders of rows of equal score.

    Among n such rows of which m are relevant, the first of these is the i-th in C(n - i, m - 1) of C(n, m) orders.
    """
    relevant, ones = rankings.relevant, np.ones(len(rankings.labels))
    n, m, place = rankings.of_tie(ones), rankings.of_tie(relevant), rankings.place - rankings.above(ones)
    first = (rankings.above(relevant) == 0) & (m > 0) & (n - place >= m - 1)
    n, m, place = (numbers[first].astype(np.int64) for numbers in (n, m, place))
    logs = np.array([math.lgamma(number + 1) for number in range(int(n.max(initial=0)) + 1)])
    orders = _choices(logs, n - place, m - 1) - _choices(logs, n, m)
    chance = np.zeros(len(first))
    chance[first] = np.exp(orders)
    return rankings.total(chance / rankings.place)


def _choices(logs: Array, of: Array, how_many: Array) -> Array:
    """Logarithm of the binomial coefficient, given those of the factorials."""
    return np.asarray(logs[of] - logs[how_many] - logs[of - how_many])
