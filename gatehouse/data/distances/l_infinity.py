"""The L-infinity distance."""

import math

from gatehouse.data.distances.shares import Histogram, shares


def l_infinity(before: Histogram, now: Histogram) -> float:
    """The largest change of the share of any one bin: the Chebyshev distance of the shares.

    Args:
        before: Rows in each bin, shape (bins,).
        now: Rows in the same bins, shape (bins,).

    Returns:
        A number from 0 (equal shares) to 1 (no bin in common, each side in one); NaN where one side has no rows.
    """
    return max((abs(q - p) for p, q in shares(before, now)), default=math.nan)
