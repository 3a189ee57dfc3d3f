"""The precision-recall curve."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.curves.thresholds import taken_above


def precision_recall(labels: Array, scores: Array) -> Array:
    """Recall and precision at every distinct score, from the highest down; recall is 0 where no row is positive.

    Args:
        labels: 0 or 1, shape (rows,).
        scores: Shape (rows,).

    Returns:
        Shape (distinct scores, 2).
    """
    hits, taken = taken_above(labels, scores)
    return np.column_stack([hits / max(hits[-1], 1), hits / taken])
