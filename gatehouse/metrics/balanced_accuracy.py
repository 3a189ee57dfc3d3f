"""Balanced accuracy: the mean over classes of the share of their rows that is found."""

import numpy as np

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


@class_metric(title="balanced accuracy", better="higher", tasks=("binary", "multiclass"), chance={"binary": 0.5})
def balanced_accuracy(counts: ClassCounts) -> float:
    """Mean over the classes that labels have, whatever was predicted (Brodersen et al. 2010)."""
    there = counts.seen > 0
    return float(np.mean(counts.right[there] / counts.seen[there]))
