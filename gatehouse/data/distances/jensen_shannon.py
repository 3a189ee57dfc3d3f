"""The Jensen-Shannon divergence."""

import math

from gatehouse.data.distances.shares import Histogram, shares, total


def jensen_shannon(before: Histogram, now: Histogram) -> float:
    """The mean divergence of both sides from their mixture, in bits (Lin, Divergence measures based on entropy, 1991).

    Args:
        before: Rows in each bin, shape (bins,).
        now: Rows in the same bins, shape (bins,).

    Returns:
        A number from 0 (equal shares) to 1 (no bin in common); NaN where one side has no rows.
    """
    pairs = shares(before, now)
    distance = total(share * math.log2(2 * share / (p + q)) / 2 for p, q in pairs for share in (p, q) if share > 0)
    return min(distance, 1.0) if pairs else distance
