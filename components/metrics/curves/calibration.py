"""The calibration curve."""

import numpy as np

from gatehouse.components.metrics.catalogue.metric import Array


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
