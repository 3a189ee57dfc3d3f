"""Bars of equal width for the eye, over the bulk of the values."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.kinds import Kind
from gatehouse.data.statistics.summary import Points

_BARS = 30
_BULK = (0.01, 0.99)


def histogram(points: Points, low: float, high: float, rows: int, kind: Kind) -> Statistics:
    """Count numbers in bars; a long tail is cut off, and counted as `below` or `above`.

    Args:
        points: The numbers, at least one.
        low: The least of them.
        high: The greatest.
        rows: How many there are.
        kind: Whole numbers get bars around whole numbers.
    """
    first, last = points.quantiles(_BULK)
    if first < last:
        low, high = max(low, first - (last - first) / 4), min(high, last + (last - first) / 4)
    edges = _edges(low, high, kind)
    below = points.rows_to(edges, "left")
    below[-1:] = points.rows_to(edges[-1:], "right")
    return bars(edges, below, rows)


def bars(edges: Sequence[float], below: npt.NDArray[np.int64], rows: int) -> Statistics:
    """The histogram of some rows.

    Args:
        edges: Edges of its bars, ascending.
        below: Rows below each edge, and at most the last one, shape (edges,).
        rows: All rows.
    """
    above = rows - int(below[-1])
    return {"edges": list(edges), "counts": np.diff(below).tolist(), "below": int(below[0]), "above": above}


def _edges(low: float, high: float, kind: Kind) -> list[float]:
    if kind is Kind.WHOLE and high - low < 2**50:
        # As wide as one or several whole numbers: other bars would hold now one of them more, now one less.
        width = max(1, math.ceil((high - low + 1) / _BARS))
        return [math.floor(low) - 0.5 + width * bar for bar in range(int(high - math.floor(low)) // width + 2)]
    shares = np.arange(_BARS + 1) / _BARS
    # Not low + share * (high - low), as the difference of two doubles may be beyond the largest.
    edges = sorted(set((float(low) * (1 - shares) + float(high) * shares).tolist()))
    return edges if len(edges) > 1 else edges * 2
