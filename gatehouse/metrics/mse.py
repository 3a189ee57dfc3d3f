"""Mean squared error."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array


@mean_metric(title="mean squared error", better="lower", tasks=("regression",), reads="scores", form=".4g")
def mse(labels: Array, values: Array) -> Array:
    """Squared error of each row; all of shape (rows,)."""
    return np.asarray((values - labels) ** 2)
