"""Precision: the share of the rows said to be of a class that are."""

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


@class_metric(title="precision", better="higher", tasks=("binary", "multiclass"))
def precision(counts: ClassCounts) -> float:
    """Of the positive class; of several the mean over those in labels or predictions. 0 for a class never predicted."""
    return counts.average(counts.right, counts.said)
