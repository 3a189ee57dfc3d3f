"""Normalised discounted cumulative gain of the first ten places."""

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric
from gatehouse.metrics.ndcg import normalised_gain


@ranking_metric(title="NDCG@10")
def ndcg_at_10(rankings: Rankings) -> Array:
    """Gain by score over gain by label, of each group's first ten places, shape (groups,); in [0, 1]."""
    return normalised_gain(rankings, most=10)
