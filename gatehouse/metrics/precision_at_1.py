"""Precision at 1: whether the first row of a ranking is relevant."""

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="P@1")
def precision_at_1(rankings: Rankings) -> Array:
    """1 where the first row of a group is relevant, else 0, shape (groups,); of rows of equal score their mean."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= 1))
