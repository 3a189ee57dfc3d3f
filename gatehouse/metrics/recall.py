"""Recall: the share of the rows of a class that is found."""

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


@class_metric(title="recall", better="higher", tasks=("binary", "multiclass"))
def recall(counts: ClassCounts) -> float:
    """Of the positive class; of several the mean over those in labels or predictions. 0 for a class without a row."""
    return counts.average(counts.right, counts.seen)
