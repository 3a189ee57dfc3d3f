"""The ratio of two standard deviations."""

import math


def spread_ratio(deviation_before: float | None, deviation_now: float | None) -> float:
    """The standard deviations before and now, the larger divided by the smaller.

    Returns:
        A number from 1 up; infinite where only one of them is 0; NaN where one side has fewer than two values.
    """
    if deviation_before is None or deviation_now is None:
        return math.nan
    least, greatest = sorted((float(deviation_before), float(deviation_now)))
    return greatest / least if least else (math.inf if greatest else 1.0)
