"""Root mean squared error."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array


@mean_metric(
    title="root mean squared error", better="lower", tasks=("regression",), reads="scores", form=".4g", root=True
)
def rmse(labels: Array, values: Array) -> Array:
    """Squared error of each row, shape (rows,), in the unit of the label once its mean's root is taken."""
    return np.asarray((values - labels) ** 2)
