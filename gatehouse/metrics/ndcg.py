"""Normalised discounted cumulative gain of rankings."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="NDCG")
def ndcg(rankings: Rankings) -> Array:
    """Gain by score over gain by label, of each group, shape (groups,); in [0, 1]."""
    return normalised_gain(rankings)


def normalised_gain(rankings: Rankings, most: float = np.inf) -> Array:
    """Discounted gain of the first `most` places over the largest possible (Jarvelin and Kekalainen 2002), by group.

    Gains are the labels themselves, their mean where rows have equal scores (McSherry and Najork 2008).

    Returns:
        Shape (groups,); 0.0 where no label is above 0.
    """
    labels = rankings.labels
    ideal = labels[np.lexsort((-labels, rankings.group))]
    kept = (rankings.place <= most) / np.log2(rankings.place + 1.0)
    gained, possible = (rankings.total(gains * kept) for gains in (rankings.expected(labels), ideal))
    return np.divide(gained, possible, out=np.zeros_like(gained), where=possible > 0)
