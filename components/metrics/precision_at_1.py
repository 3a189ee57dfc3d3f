"""Precision at 1: the share of the first first places of a ranking that has a relevant row."""

from gatehouse.components.metrics.catalogue.metric import Array
from gatehouse.components.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="P@1")
def precision_at_1(rankings: Rankings) -> Array:
    """Relevant rows among the first first of each group over first, also where the group has fewer rows."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= 1)) / 1
