"""Mean absolute percentage error, for labels that are far from zero."""

import numpy as np

from gatehouse.metrics.catalogue.declared import metric
from gatehouse.metrics.catalogue.metric import Array, OnDraw

_TINY = float(np.finfo(np.float64).eps)
_NO_SKILL = 1.0
"""That of a model that always says 0. Where no row counts, 0.0 would be that of a perfect one."""


def _prepare(labels: Array, values: Array) -> OnDraw:
    counts = np.flatnonzero(np.abs(labels) >= _TINY)
    found = np.abs(values[counts] - labels[counts]) / np.abs(labels[counts])

    def mean(times: Array) -> float:
        drawn = times[counts]
        return float(np.einsum("i,i", drawn, found) / drawn.sum()) if drawn.any() else _NO_SKILL

    return mean


@metric(
    title="mean absolute percentage error",
    better="lower",
    tasks=("regression",),
    reads="scores",
    form=".4g",
    prepare=_prepare,
    caveat="it is that of the rows whose label is not 0, as an error is no share of 0; labels near 0 outweigh all "
    "others, so judge by another metric where there are such labels",
)
def mape(labels: Array, values: Array) -> float:
    """Mean absolute error over the label's absolute value, as a share: 0.1 is 10 %; labels and values (rows,).

    Rows with a label of 0, or nearer to it than 2.2e-16, are left out, as no error is a share of 0; 1.0 where no other
    row is left. Scikit-learn divides by 2.2e-16 there, so that one such row makes the mean 1e15. Labels near 0 still
    outweigh all others.
    """
    return float(_prepare(labels, values)(np.ones(len(labels))))
