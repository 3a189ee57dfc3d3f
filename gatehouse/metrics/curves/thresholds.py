"""What is taken by every threshold on the score."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array


def taken_above(labels: Array, scores: Array) -> tuple[Array, Array]:
    """Positive rows and all rows at or above every distinct score, from the highest down, shape (scores,) each.

    Args:
        labels: Positive where above a half, shape (rows,).
        scores: Shape (rows,).
    """
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    positives = np.bincount(ranks, weights=np.asarray(labels) > 0.5, minlength=len(counts))
    return np.cumsum(positives[::-1]), np.cumsum(counts[::-1])
