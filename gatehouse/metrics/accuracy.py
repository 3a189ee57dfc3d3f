"""Accuracy."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array


@mean_metric(title="accuracy", better="higher", tasks=("binary", "multiclass"), reads="classes", aliases=("acc",))
def accuracy(labels: Array, classes: Array) -> Array:
    """1 for each row whose class is the predicted one, else 0; all of shape (rows,)."""
    return np.asarray(np.asarray(labels) == classes, np.float64)
