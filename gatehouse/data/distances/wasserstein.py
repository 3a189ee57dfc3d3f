"""The Wasserstein distance."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt


def wasserstein(before: npt.NDArray[Any], now: npt.NDArray[Any]) -> float:
    """How far values move on average if one distribution is carried to the other: the area between their steps.

    Kantorovich (1942), the first Wasserstein distance; of finite numbers, in their unit.

    Args:
        before: Values, shape (rows before,).
        now: Values, shape (rows now,).

    Returns:
        A number from 0 (equal distributions) up; NaN where one side has no values.
    """
    if not len(before) or not len(now):
        return math.nan
    before, now = np.sort(before), np.sort(now)
    every = np.sort(np.concatenate([before, now]))
    share = np.searchsorted(before, every[:-1], side="right") / len(before)
    share_now = np.searchsorted(now, every[:-1], side="right") / len(now)
    return math.fsum((np.abs(share - share_now) * np.diff(every)).tolist())
