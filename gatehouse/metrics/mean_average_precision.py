"""Mean average precision of rankings (MAP)."""

import numpy as np

from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.catalogue.rankings import Rankings, ranking_metric


@ranking_metric(title="MAP")
def mean_average_precision(rankings: Rankings) -> Array:
    """Average precision, shape (groups,): the mean over a group's relevant rows of the precision down to them.

    That is taken of all rows that score as high as the row or higher, as `average_precision` does.
    """
    relevant, ones = rankings.relevant, np.ones(len(rankings.labels))
    found, taken = (rankings.above(numbers) + rankings.of_tie(numbers) for numbers in (relevant, ones))
    return rankings.total(relevant * found / taken) / np.maximum(rankings.total(relevant), 1)
