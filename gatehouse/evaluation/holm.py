"""Holm's correction for many tests at once."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array


def holm(p_values: Array) -> Array:
    """Adjusted p-values, shape (tests,): rejecting those below a level is wrong at all with at most that chance.

    Holm (1979): the k-th smallest of n is multiplied by n - k + 1, and none is below one that is smaller.
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(p_values[order] * factors), 1.0)
    return adjusted
