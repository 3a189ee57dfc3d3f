"""Expected calibration error."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array
from gatehouse.components.metrics.curves.calibration import calibration

_BINS = 20


@metric(title="calibration error", better="lower", tasks=("binary",), reads="probabilities")
def calibration_error(labels: Array, probabilities: Array) -> float:
    """Distance of observed rate and mean probability over 20 groups of equal size, weighted by rows (Naeini 2015)."""
    predicted, observed, counts = calibration(labels, probabilities, _BINS).T
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))
