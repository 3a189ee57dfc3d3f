"""Expected calibration error."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array, OnDraw
from gatehouse.components.metrics.curves.calibration import calibration, on_draws_of_groups

_BINS = 20


def _error(predicted: Array, observed: Array, counts: Array) -> float:
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))


def _prepare(labels: Array, probabilities: Array) -> OnDraw:
    return on_draws_of_groups(labels, probabilities, _BINS, _error)


@metric(
    title="calibration error",
    better="lower",
    tasks=("binary",),
    reads="probabilities",
    prepare=_prepare,
    overstated=True,
)
def calibration_error(labels: Array, probabilities: Array) -> float:
    """Distance of observed rate and mean probability over 20 groups of equal size, weighted by rows (Naeini 2015)."""
    return _error(*calibration(labels, probabilities, _BINS).T)
