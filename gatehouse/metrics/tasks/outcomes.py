"""Labels as a few outcomes: how well a feature alone tells the label is asked of each of them."""

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.tasks.task import Task

_MOST = 20
Floats = npt.NDArray[np.float64]


def outcomes(task: Task, labels: Floats, fitted_on: Floats) -> npt.NDArray[np.int64]:
    """Number of each row's outcome from 0, shape (rows,).

    Of classes these are the classes themselves, the most frequent first where there are several; those beyond the
    twentieth are one. Of numbers the outcome is 1 above their median: who tells that tells the number.

    Args:
        task: What the labels are.
        labels: Shape (rows,), without NaN.
        fitted_on: Labels for the frequencies and the median, shape (fitted rows,); if empty, all outcomes are 0.
    """
    if not len(fitted_on):
        return np.zeros(len(labels), np.int64)
    if task.output == "probability":
        return labels.astype(np.int64)
    if task.output == "probabilities":
        values, counts = np.unique(fitted_on, return_counts=True)
        frequent = values[np.argsort(-counts, kind="stable")][:_MOST]
        order = np.argsort(frequent)
        at = np.minimum(np.searchsorted(frequent[order], labels), len(frequent) - 1)
        return np.where(frequent[order][at] == labels, order[at], len(frequent)).astype(np.int64)
    median = np.median(fitted_on)
    above = labels > median if (fitted_on > median).any() else labels >= median
    return above.astype(np.int64)
