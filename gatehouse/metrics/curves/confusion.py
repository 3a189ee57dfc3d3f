"""The confusion matrix."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

_MOST = 20


def confusion(labels: Array, classes: Array) -> Array:
    """Rows by label and predicted class, of each pair that occurs among the 20 most frequent labels.

    Args:
        labels: Numbers of classes, shape (rows,).
        classes: The predicted ones, shape (rows,).

    Returns:
        Label, predicted class and rows, shape (pairs, 3); other classes have the number -1.
    """
    found, counts = np.unique(labels, return_counts=True)
    frequent = found[np.argsort(-counts, kind="stable")][:_MOST]
    sides = np.column_stack([np.where(np.isin(side, frequent), side, -1) for side in (labels, classes)])
    pairs, rows = np.unique(sides.astype(np.int64), axis=0, return_counts=True)
    return np.column_stack([pairs, rows])
