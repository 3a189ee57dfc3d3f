"""The population stability index (PSI)."""

import math

from gatehouse.data.distances.shares import Histogram, smoothed, total


def population_stability(before: Histogram, now: Histogram) -> float:
    """The sum over bins of (q - p) ln(q / p), of smoothed shares p before and q now.

    As used in credit scoring (Siddiqi, Credit Risk Scorecards, 2006); it is the Kullback-Leibler divergence summed over
    both directions (Jeffreys, 1946).

    Args:
        before: Rows in each bin, shape (bins,).
        now: Rows in the same bins, shape (bins,).

    Returns:
        A number from 0 (equal shares) up; NaN where one side has no rows.
    """
    return total((q - p) * math.log(q / p) for p, q in smoothed(before, now))
