"""Confidence intervals of 95 %, and p-values corrected for the number of tests."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Configuration is read without NumPy.
    from gatehouse.metrics.metric import Array

NORMAL = 1.959963984540054
"""Standard errors from the middle of a normal interval of 95 % to its ends."""


def wilson(share: float, count: float, normal: float = NORMAL) -> tuple[float, float]:
    """The ends of Wilson's interval of a share (Wilson 1927, doi:10.1080/01621459.1927.10502953).

    It is not empty where the share is 0 or 1.

    Args:
        count: Of how many, above 0.
        normal: Standard errors from the middle of a normal interval to its ends, which say the level.
    """
    square = normal**2 / count
    spread = normal * math.sqrt(share * (1 - share) / count + square / (4 * count))
    middle = share + square / 2
    low, high = (middle - spread) / (1 + square), (middle + spread) / (1 + square)
    return max(0.0, min(low, share)), min(1.0, max(high, share))  # Rounding may put an end beyond the share, or 0 or 1.


def holm(p_values: "Array") -> "Array":
    """Adjusted p-values, shape (tests,): rejecting those below a level makes any mistake with at most that chance.

    Holm (1979): the k-th smallest of n is multiplied by n - k + 1, and no value is below a smaller one.
    """
    import numpy as np

    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted
