"""What every distance between two histograms starts from: the shares of the rows that each bin has, before and now.

Sums are exact and logarithms those of the C library, not of a vector unit: a distance has the same bits everywhere.
"""

import math
from collections.abc import Iterable

Histogram = Iterable[int]
"""Rows in each bin; two that are compared have the same bins in the same order."""
Shares = list[tuple[float, float]]

_LEAST_SHARE = 1e-4


def shares(before: Histogram, now: Histogram) -> Shares:
    """The share of the rows before and now, a pair for each bin that has any; no pair where one side has no rows.

    Raises:
        ValueError: if the numbers of bins differ.
    """
    pairs = [(int(p), int(q)) for p, q in zip(before, now, strict=True)]
    rows, rows_now = sum(p for p, _ in pairs), sum(q for _, q in pairs)
    return [(p / rows, q / rows_now) for p, q in pairs if p or q] if rows and rows_now else []


def smoothed(before: Histogram, now: Histogram) -> Shares:
    """Shares of which none is zero: one below 1e-4 counts as 1e-4, before all are scaled to sum to one again.

    Without that a value which the rows before never had would be infinitely far, and without the scaling a divergence
    could be negative.
    """
    raised = [(max(p, _LEAST_SHARE), max(q, _LEAST_SHARE)) for p, q in shares(before, now)]
    sum_before, sum_now = math.fsum(p for p, _ in raised), math.fsum(q for _, q in raised)
    return [(p / sum_before, q / sum_now) for p, q in raised]


def total(terms: Iterable[float]) -> float:
    """The sum of the terms, not below 0, which rounding alone would cause; NaN where there is no term."""
    found = list(terms)
    return max(0.0, math.fsum(found)) if found else math.nan
