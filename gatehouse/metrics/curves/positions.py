"""What stands where in rankings."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

_MOST = 20


def positions(labels: Array, scores: Array, groups: Array) -> Array:
    """Mean label of the rows at each of the first 20 places, by score and at best.

    Args:
        labels: From 0 up, shape (rows,).
        scores: Higher stands earlier, shape (rows,); rows of equal score stand in the order given.
        groups: Number of the ranking that each row is in, shape (rows,).

    Returns:
        Place from 1, mean label by score, and by label itself, shape (places, 3).
    """
    means = [_means(labels, by, groups) for by in (scores, labels)]
    return np.column_stack([np.arange(1, len(means[0]) + 1), *means])


def _means(labels: Array, by: Array, groups: Array) -> Array:
    order = np.lexsort((-np.asarray(by, np.float64), groups))
    _, first, number = np.unique(groups[order], return_index=True, return_inverse=True)
    place = np.arange(len(order)) - first[number]
    shown = place < _MOST
    return np.bincount(place[shown], weights=labels[order][shown]) / np.bincount(place[shown])
