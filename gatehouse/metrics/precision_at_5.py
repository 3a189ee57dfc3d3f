"""Precision at 5: the share of the first five places of a ranking that has a relevant row."""

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="P@5")
def precision_at_5(rankings: Rankings) -> Array:
    """Relevant rows among a group's first five over five, also where it has fewer rows; shape (groups,)."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= 5)) / 5
