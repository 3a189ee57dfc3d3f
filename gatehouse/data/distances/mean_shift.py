"""The shift of a mean."""

import math


def mean_shift(mean_before: float | None, mean_now: float | None, deviation_before: float | None) -> float:
    """How far a mean moved, in standard deviations of the rows before: |m_now - m_before| / s_before.

    Returns:
        A number from 0 up; infinite where a column that was constant has another mean; NaN where one side has no mean.
    """
    if mean_before is None or mean_now is None:
        return math.nan
    moved = abs(mean_now - mean_before)
    if deviation_before:
        return float(moved / deviation_before)
    return math.inf if moved else 0.0
