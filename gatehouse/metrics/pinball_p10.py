"""Pinball loss of the 10th percentile."""

import numpy as np

from gatehouse.metrics.catalogue.declared import mean_metric
from gatehouse.metrics.catalogue.metric import Array

_QUANTILE = 0.1


@mean_metric(title="pinball loss of P10", better="lower", tasks=("regression",), reads="scores", form=".4g")
def pinball_p10(labels: Array, values: Array) -> Array:
    """Error of each row, shape (rows,), times 0.1 where the label is above the value, else times 0.9.

    Koenker and Bassett 1978.
    """
    return np.asarray(np.maximum(_QUANTILE * (labels - values), (_QUANTILE - 1) * (labels - values)))
