"""How far a histogram has moved: one definition for the drift of parts of a split and of what a model is asked."""

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]

_FLOOR = 1e-4


def population_stability(expected: Counts, found: Counts) -> float:
    """PSI of two histograms over the same bins: sum of (q - p) ln(q / p), shares floored at 1e-4 (Siddiqi 2006).

    Args:
        expected: Counts of the reference, shape (bins,).
        found: Counts of the current rows, shape (bins,).

    Returns:
        A number from 0 (equal shares) up; NaN where one side has no rows.
    """
    if not expected.sum() or not found.sum():
        return float("nan")
    p, q = (np.maximum(counts / counts.sum(), _FLOOR) for counts in (expected, found))
    return float(np.sum((q - p) * np.log(q / p)))
