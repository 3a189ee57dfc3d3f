"""The Brier score."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import mean_metric
from gatehouse.components.metrics.catalogue.metric import Array


@mean_metric(title="Brier score", better="lower", tasks=("binary",), reads="probabilities")
def brier(labels: Array, probabilities: Array) -> Array:
    """Squared error of each row's probability (Brier 1950)."""
    return np.asarray((np.asarray(probabilities) - np.asarray(labels)) ** 2)
