"""Expected calibration error, with less of what chance adds to it."""

import math

import numpy as np

from gatehouse.metrics.catalogue.declared import metric
from gatehouse.metrics.catalogue.metric import Array
from gatehouse.metrics.curves.calibration import BINS, calibration, calibration_of_draws, gaps


def _error(curve: tuple[Array, Array, Array]) -> float:
    predicted, observed, counts = curve
    gaps, noise = np.abs(predicted - observed), np.sqrt(np.maximum(observed * (1 - observed), 0) / counts)
    found = [2 * gap - _mean_distance(gap, spread) for gap, spread in zip(gaps.tolist(), noise.tolist(), strict=True)]
    return max(0.0, float(np.sum(np.array(found) * counts) / np.sum(counts)))


def _mean_distance(gap: float, spread: float) -> float:
    """The mean of |gap + spread * z| with z standard normal: that of the folded normal distribution."""
    if not spread:
        return gap
    ratio = gap / spread
    return spread * math.sqrt(2 / math.pi) * math.exp(-ratio * ratio / 2) + gap * math.erf(ratio / math.sqrt(2))


@metric(
    title="debiased calibration error",
    better="lower",
    tasks=("binary",),
    reads="probabilities",
    prepare=calibration_of_draws,
    of_counts=_error,
    gaps=gaps,
    groups=BINS,
)
def calibration_error_debiased(labels: Array, probabilities: Array) -> float:
    """`calibration_error` less what it would grow by if rates were drawn once more (Kumar, Liang and Ma 2019).

    Of a group of n rows with the rate r the rate varies by sqrt(r (1 - r) / n), so even probabilities that come true
    are apart from their rates. The mean of that distance over rates drawn around those observed, which they take from
    samples, is a formula here. Not below 0.
    """
    return _error(tuple(calibration(labels, probabilities, BINS).T))
