"""The calibration curve."""

from collections.abc import Callable

import numpy as np

from gatehouse.metrics.catalogue.metric import Array

BINS = 20
"""Groups of the calibration errors."""


def calibration(labels: Array, probabilities: Array, bins: int) -> Array:
    """Mean probability, observed rate and row count in groups of about equal size, by probability.

    Rows of the same probability may fall into different groups; each counts with the rate of all of them, so that the
    order of rows does not matter.

    Args:
        labels: 0 or 1, or of predicted numbers the numbers that came true, shape (rows,).
        probabilities: Or predicted numbers, shape (rows,).
        bins: Number of groups; fewer where there are fewer rows.

    Returns:
        Shape (groups, 3).
    """
    _, inverse, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    rates = (np.bincount(inverse, weights=labels) / counts)[inverse]
    order = np.argsort(probabilities, kind="stable")
    groups = [group for group in np.array_split(order, bins) if len(group)]
    return np.array([[np.mean(probabilities[group]), np.mean(rates[group]), len(group)] for group in groups])


def calibration_of_draws(
    labels: Array, probabilities: Array, bins: int = BINS
) -> Callable[[Array], tuple[Array, Array, Array]]:
    """A function from how often each row was drawn to the columns of their `calibration`; rows are sorted only once.

    Args:
        labels: 0 or 1, shape (rows,).
        probabilities: Shape (rows,).
        bins: Number of groups.
    """
    order = np.argsort(probabilities, kind="stable")
    values, came_true = probabilities[order], np.asarray(labels)[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))

    def drawn_rows(times: Array) -> tuple[Array, Array, Array]:
        times, drawn = times[order], int(times.sum())
        rows = np.cumsum(times)[last]
        groups = np.arange(bins + 1)
        ends = groups * (drawn // bins) + np.minimum(groups, drawn % bins)
        counts = np.diff(ends)
        some = counts > 0
        # A group may end between any two rows of one probability, which all have the same rate: on a line.
        after = np.minimum(np.searchsorted(rows, ends, side="right"), len(rows) - 1)
        knots = np.unique(np.append(after, np.maximum(after - 1, 0)))
        at, sums = np.append(0.0, rows[knots]), (np.cumsum(times * each)[last[knots]] for each in (values, came_true))
        predicted, observed = (np.diff(np.interp(ends, at, np.append(0.0, each)))[some] / counts[some] for each in sums)
        return predicted, observed, counts[some]

    return drawn_rows


def gaps(curve: tuple[Array, Array, Array]) -> Array:
    """Distance of probability and rate, times the share of rows, shape (20,); 0 of a group without rows."""
    predicted, observed, counts = curve
    found = np.zeros(BINS)
    found[: len(counts)] = (predicted - observed) * counts / counts.sum()
    return found
