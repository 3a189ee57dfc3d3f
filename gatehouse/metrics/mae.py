"""Mean absolute error."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array


@mean_metric(title="mean absolute error", better="lower", tasks=("regression",), reads="scores", form=".4g")
def mae(labels: Array, values: Array) -> Array:
    """Absolute error of each row; all of shape (rows,)."""
    return np.asarray(np.abs(values - labels))
