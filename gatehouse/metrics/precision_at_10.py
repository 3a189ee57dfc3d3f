"""Precision at 10: the share of the first ten places of a ranking that has a relevant row."""

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="P@10")
def precision_at_10(rankings: Rankings) -> Array:
    """Relevant rows among a group's first ten over ten, also where it has fewer rows; shape (groups,)."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= 10)) / 10
