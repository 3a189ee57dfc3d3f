"""Area under the ROC curve."""

import math

import numpy as np

from gatehouse.components.metrics.catalogue.declared import ranked_metric
from gatehouse.components.metrics.catalogue.metric import Array


def _interval(area: float, labels: Array) -> tuple[float, float]:
    """From the standard error of Hanley and McNeil (1982), equations 1 and 2; all of [0, 1] for several classes."""
    if labels.max() > 1:
        return 0.0, 1.0
    ones = int((labels > 0.5).sum())
    zeros = len(labels) - ones
    first, second = area / (2 - area), 2 * area * area / (1 + area)
    square = area * (1 - area) + (ones - 1) * (first - area * area) + (zeros - 1) * (second - area * area)
    error = 1.959964 * math.sqrt(max(square, 0.0) / (ones * zeros))
    return max(0.0, area - error), min(1.0, area + error)


@ranked_metric(title="ROC AUC", better="higher", tasks=("binary", "multiclass"), interval=_interval)
def roc_auc(hits: Array, rows: Array) -> float:
    """The chance that a positive row scores above a negative one, ties counting half.

    This is the Mann-Whitney U statistic over the number of pairs (Hanley and McNeil 1982). Of several classes it is the
    mean area of each against the rest (Provost and Domingos 2000).

    Returns:
        A number in [0, 1]; 0.5 where only one class is there.
    """
    misses = rows - hits
    pairs = int(hits.sum()) * int(misses.sum())
    below = np.cumsum(misses[::-1])[::-1] - misses / 2
    return float(np.sum(hits * below) / pairs) if pairs else 0.5
