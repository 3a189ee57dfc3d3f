"""The coefficient of determination."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array, OnDraw


def _prepare(labels: Array, values: Array) -> OnDraw:
    errors = (values - labels) ** 2
    return lambda drawn: _explained(labels[drawn], errors[drawn])


def _explained(labels: Array, errors: Array) -> float:
    # A sum of squares around a mean that was rounded is not zero where it should be.
    if labels.min() == labels.max():
        return float(not errors.any())
    return float(1 - np.sum(errors) / np.sum((labels - np.mean(labels)) ** 2))


@metric(title="R²", better="higher", tasks=("regression",), reads="scores", prepare=_prepare)
def r2(labels: Array, values: Array) -> float:
    """The share of the labels' variance that the values explain; of labels that are all equal, 1 if right, else 0."""
    return _explained(labels, (values - labels) ** 2)
