"""Normalised discounted cumulative gain of rankings."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array


@metric(title="NDCG", better="higher", tasks=("ranking",), reads="groups")
def ndcg(labels: Array, scores: Array, groups: Array) -> float:
    """Mean over groups that have a label above 0 of gain by score over gain by label (Jarvelin and Kekalainen 2002).

    Gains are the labels themselves; rows of equal score stand in the order given.

    Args:
        labels: From 0 up, shape (rows,).
        scores: Higher stands earlier, shape (rows,).
        groups: Number of the ranking that each row is in, shape (rows,).

    Returns:
        A number in [0, 1]; 0.0 where no group has a label above 0.
    """
    gained, ideal = (_gain(labels, by, groups) for by in (scores, labels))
    known = ideal > 0
    return float(np.mean(gained[known] / ideal[known])) if known.any() else 0.0


def _gain(labels: Array, by: Array, groups: Array) -> Array:
    """The discounted gain of every group in ascending order of groups, shape (groups,), its rows sorted by `by`."""
    order = np.argsort(-np.asarray(by, np.float64), kind="stable")
    order = order[np.argsort(groups[order], kind="stable")]
    _, first, number = np.unique(groups[order], return_index=True, return_inverse=True)
    place = np.arange(len(order)) - first[number]
    return np.bincount(number, weights=labels[order] / np.log2(place + 2.0))
