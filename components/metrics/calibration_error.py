"""Expected calibration error."""

import numpy as np

from gatehouse.components.metrics.catalogue.declared import metric
from gatehouse.components.metrics.catalogue.metric import Array, OnDraw
from gatehouse.components.metrics.curves.calibration import calibration

_BINS = 20


def _prepare(labels: Array, probabilities: Array) -> OnDraw:
    order = np.argsort(probabilities, kind="stable")
    values = probabilities[order]
    apart = values - labels[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))

    def drawn_rows(drawn: Array) -> float:
        times = np.bincount(drawn, minlength=len(order))[order]
        # A group may end between any two rows of one probability, which are all as far from their rate: on a line.
        rows, sums = (np.append(0.0, np.cumsum(each)[last]) for each in (times, times * apart))
        groups = np.arange(_BINS + 1)
        ends = groups * (len(drawn) // _BINS) + np.minimum(groups, len(drawn) % _BINS)
        return float(np.sum(np.abs(np.diff(np.interp(ends, rows, sums)))) / len(drawn))

    return drawn_rows


@metric(title="calibration error", better="lower", tasks=("binary",), reads="probabilities", prepare=_prepare)
def calibration_error(labels: Array, probabilities: Array) -> float:
    """Distance of observed rate and mean probability over 20 groups of equal size, weighted by rows (Naeini 2015)."""
    predicted, observed, counts = calibration(labels, probabilities, _BINS).T
    return float(np.sum(np.abs(predicted - observed) * counts) / np.sum(counts))
