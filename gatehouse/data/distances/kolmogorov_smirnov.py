"""The Kolmogorov-Smirnov distance."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


def kolmogorov_smirnov(before: npt.NDArray[Any], now: npt.NDArray[Any]) -> tuple[float, float]:
    """The largest difference between the shares of rows up to a value, and the first value at which it is found.

    Smirnov, Table for estimating the goodness of fit of empirical distributions (1948).

    Args:
        before: Finite values, shape (rows before,).
        now: Finite values, shape (rows now,).

    Returns:
        A number from 0 (equal distributions) to 1 (no overlap), and the value; both NaN where one side has no values.
    """
    if not len(before) or not len(now):
        return math.nan, math.nan
    before, now = np.sort(before), np.sort(now)
    every = np.unique(np.concatenate([before, now]))
    share = np.searchsorted(before, every, side="right") / len(before)
    share_now = np.searchsorted(now, every, side="right") / len(now)
    apart = np.abs(share - share_now)
    place = int(apart.argmax())
    return float(apart[place]), float(every[place])
