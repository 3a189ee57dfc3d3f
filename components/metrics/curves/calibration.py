"""The calibration curve."""

from collections.abc import Callable

import numpy as np

from gatehouse.components.metrics.catalogue.metric import Array, OnDraw


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


def on_draws_of_groups(labels: Array, probabilities: Array, bins: int, measured: Callable[..., float]) -> OnDraw:
    """A function from how often each row was drawn to what is measured on their calibration curve, sorted only once.

    Args:
        labels: 0 or 1, shape (rows,).
        probabilities: Shape (rows,).
        bins: Number of groups.
        measured: Takes the columns of `calibration`: probabilities, rates and rows of the groups.
    """
    order = np.argsort(probabilities, kind="stable")
    values, came_true = probabilities[order], np.asarray(labels)[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))

    def drawn_rows(times: Array) -> float:
        times, drawn = times[order], int(times.sum())
        # A group may end between any two rows of one probability, which all have the same rate: on a line.
        rows, said, right = (
            np.append(0.0, np.cumsum(each)[last]) for each in (times, times * values, times * came_true)
        )
        groups = np.arange(bins + 1)
        ends = groups * (drawn // bins) + np.minimum(groups, drawn % bins)
        counts = np.diff(ends)
        some = counts > 0
        means = (np.diff(np.interp(ends, rows, sums))[some] / counts[some] for sums in (said, right))
        return measured(*means, counts[some])

    return drawn_rows
