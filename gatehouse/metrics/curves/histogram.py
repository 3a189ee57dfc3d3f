"""The histogram of scores by label."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

BINS = 40


def histogram(labels: Array, probabilities: Array) -> Array:
    """Left edge of each of 40 bins of [0, 1], and the share of the rows of label 0 and of label 1 that is in it.

    Args:
        labels: 0 or 1, shape (rows,).
        probabilities: Shape (rows,).

    Returns:
        Shape (40, 3).
    """
    edges = np.linspace(0.0, 1.0, BINS + 1)
    shares = []
    for label in (0, 1):
        counts = np.histogram(probabilities[labels == label], edges)[0]
        shares.append(counts / max(int(counts.sum()), 1))
    return np.column_stack([edges[:-1], *shares])
