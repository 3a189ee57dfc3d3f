"""F1: the harmonic mean of precision and recall."""

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


@class_metric(title="F1", better="higher", tasks=("binary", "multiclass"))
def f1(counts: ClassCounts) -> float:
    """Of the positive class; of several the mean over those in labels or predictions. 0 for a class never right."""
    return counts.average(2 * counts.right, counts.seen + counts.said)
