"""The histogram of errors."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

BINS = 40
_TAIL = 0.005


def residuals(labels: Array, values: Array) -> Array:
    """Left edge of each of 40 bins, and the share of rows whose error, value less label, is in it.

    The bins hold all errors but half a percent at either end, which count in the bin beside them.

    Args:
        labels: Shape (rows,).
        values: The predicted ones, shape (rows,).

    Returns:
        Shape (40, 2).
    """
    errors = np.asarray(values, np.float64) - labels
    low, high = np.quantile(errors, (_TAIL, 1 - _TAIL))
    edges = np.linspace(low, high if high > low else low + 1.0, BINS + 1)
    counts = np.histogram(np.clip(errors, edges[0], edges[-1]), edges)[0]
    return np.column_stack([edges[:-1], counts / len(errors)])
