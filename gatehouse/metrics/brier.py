"""The Brier score."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array, probability_of_label


@mean_metric(title="Brier score", better="lower", tasks=("binary", "multiclass"), reads="probabilities")
def brier(labels: Array, probabilities: Array) -> Array:
    """Squared error of each row's probability; of several classes the sum over all of them, up to 2 (Brier 1950).

    Args:
        labels: 0 or 1, or the number of the class, shape (rows,).
        probabilities: Of label 1, shape (rows,), or of each class, shape (rows, classes).
    """
    if probabilities.ndim == 1:
        return np.asarray((probabilities - labels) ** 2)
    right = probability_of_label(labels, probabilities)
    others = np.sum(probabilities**2, axis=1) - right**2
    return np.asarray((1 - right) ** 2 + np.maximum(others, 0.0))
