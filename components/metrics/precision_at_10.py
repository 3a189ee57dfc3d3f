"""Precision at 10: the share of the first ten places of a ranking that has a relevant row."""

from gatehouse.components.metrics.catalogue.metric import Array
from gatehouse.components.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="P@10")
def precision_at_10(rankings: Rankings) -> Array:
    """Relevant rows among the first ten of each group over ten, also where the group has fewer rows."""
    return rankings.total(rankings.expected(rankings.relevant) * (rankings.place <= 10)) / 10
