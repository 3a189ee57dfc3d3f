"""Mean absolute percentage error, for labels that are far from zero."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import mean_metric
from gatehouse.components.metrics.catalogue.metric import Array

_TINY = float(np.finfo(np.float64).eps)


@mean_metric(
    title="mean absolute percentage error",
    better="lower",
    tasks=("regression",),
    reads="scores",
    form=".4g",
    caveat="labels near zero outweigh all others, and one of zero makes it astronomic: judge by another metric there",
)
def mape(labels: Array, values: Array) -> Array:
    """Absolute error of each row over its label's absolute value, as a share: 0.1 is 10 %; all of shape (rows,).

    A label within 2.2e-16 of zero counts as that far from it, as in scikit-learn. So one label of zero that is not met
    makes the mean astronomic, and labels near zero outweigh all others: where such labels are, judge by another metric.
    """
    return np.asarray(np.abs(values - labels) / np.maximum(np.abs(labels), _TINY))
