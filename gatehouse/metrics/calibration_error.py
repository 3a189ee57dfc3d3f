"""Expected calibration error."""

import numpy as np

from gatehouse.metrics.catalogue.declared import metric
from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.curves.calibration import BINS, calibration, calibration_of_draws, gaps


def _error(curve: tuple[Array, Array, Array]) -> float:
    predicted, observed, counts = curve
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))


@metric(
    title="plain calibration error",
    better="lower",
    tasks=("binary",),
    reads="probabilities",
    prepare=calibration_of_draws,
    of_counts=_error,
    gaps=gaps,
    groups=BINS,
    caveat="it is that of these rows, and chance makes it larger than the true error; the debiased one is nearer to "
    "that, and has the interval",
    has_interval=False,
)
def calibration_error(labels: Array, probabilities: Array) -> float:
    """Distance of rate and mean probability, shape (rows,), over 20 groups of equal size, by rows (Naeini 2015)."""
    return _error(tuple(calibration(labels, probabilities, BINS).T))
