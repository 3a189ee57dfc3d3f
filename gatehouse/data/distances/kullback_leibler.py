"""The Kullback-Leibler divergence."""

import math

from gatehouse.data.distances.shares import Histogram, smoothed, total


def kullback_leibler(before: Histogram, now: Histogram) -> float:
    """The divergence of now from before in nats: the sum over bins of q ln(q / p), of smoothed shares p and q.

    Kullback and Leibler, On information and sufficiency (1951).

    Args:
        before: Rows in each bin, shape (bins,).
        now: Rows in the same bins, shape (bins,).

    Returns:
        A number from 0 (equal shares) up; NaN where one side has no rows.
    """
    return total(q * math.log(q / p) for p, q in smoothed(before, now))
