"""The coefficient of determination."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array


@metric(title="R²", better="higher", tasks=("regression",), reads="scores")
def r2(labels: Array, values: Array) -> float:
    """The share of the labels' variance that the values explain; of labels that are all equal, 1 if right, else 0."""
    errors, spread = np.sum((values - labels) ** 2), np.sum((labels - np.mean(labels)) ** 2)
    if spread == 0:
        return float(errors == 0)
    return float(1 - errors / spread)
