"""The Matthews correlation coefficient."""

import math

import numpy as np

from gatehouse.metrics.catalogue.class_counts import ClassCounts, class_metric


@class_metric(
    title="Matthews correlation",
    better="higher",
    tasks=("binary", "multiclass"),
    chance={"binary": 0.0, "multiclass": 0.0},
)
def mcc(counts: ClassCounts) -> float:
    """The correlation of labels and predicted classes (Gorodkin 2004); 0 where one of them is all the same."""
    rows = counts.seen.sum()
    spread = (rows**2 - np.sum(counts.seen**2)) * (rows**2 - np.sum(counts.said**2))
    shared = rows * counts.right.sum() - np.sum(counts.seen * counts.said)
    return float(shared) / math.sqrt(spread) if spread > 0 else 0.0
