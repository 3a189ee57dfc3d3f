"""The ROC curve."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.curves.thresholds import taken_above


def roc(labels: Array, scores: Array) -> Array:
    """False positive rate, true positive rate and threshold at every distinct score, from the highest down.

    The curve begins at (0, 0), with a threshold above every score.

    Args:
        labels: 0 or 1, shape (rows,).
        scores: Shape (rows,), at least one row.

    Returns:
        Shape (distinct scores + 1, 3).
    """
    hits, taken = taken_above(labels, scores)
    misses = taken - hits
    thresholds = np.unique(scores)[::-1].astype(float)
    start = [[0.0, 0.0, thresholds[0] + 1]]
    rates = np.column_stack([misses / max(misses[-1], 1), hits / max(hits[-1], 1), thresholds])
    return np.concatenate([start, rates])
