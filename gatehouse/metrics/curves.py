"""Curves of a model, each a function to points of shape (points, columns).

Labels are 0 or 1 if nothing else is said; labels, scores and probabilities have the shape (rows,).
"""

from collections.abc import Callable

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array

BINS = 20
"""Bins of the calibration errors."""
HISTOGRAM_BINS = 40
_TAIL = 0.005
_MOST_CLASSES = 20
_MOST_PLACES = 20


def taken_above(labels: Array, scores: Array) -> tuple[Array, Array]:
    """Positive rows (label above a half) and all rows at or above every distinct score, from the highest down."""
    _, ranks, counts = np.unique(scores, return_inverse=True, return_counts=True)
    positives = np.bincount(ranks, weights=np.asarray(labels) > 0.5, minlength=len(counts))
    return np.cumsum(positives[::-1]), np.cumsum(counts[::-1])


def roc(labels: Array, scores: Array) -> Array:
    """False positive rate, true positive rate and threshold at every distinct score, from the highest down.

    The curve begins at (0, 0), with a threshold above every score. Shape (distinct scores + 1, 3).
    """
    hits, taken = taken_above(labels, scores)
    misses = taken - hits
    thresholds = np.unique(scores)[::-1].astype(float)
    start = [[0.0, 0.0, thresholds[0] + 1]]
    rates = np.column_stack([misses / max(misses[-1], 1), hits / max(hits[-1], 1), thresholds])
    return np.concatenate([start, rates])


def precision_recall(labels: Array, scores: Array) -> Array:
    """Recall and precision at every distinct score, from the highest down; recall is 0 without a positive row."""
    hits, taken = taken_above(labels, scores)
    return np.column_stack([hits / max(hits[-1], 1), hits / taken])


def calibration(labels: Array, probabilities: Array, bins: int) -> Array:
    """Mean probability, observed rate and row count in bins of about equal size, by probability; shape (bins, 3).

    Rows of the same probability may fall into different bins; each counts with the rate of all of them, so the order
    of rows does not matter. There are fewer bins if there are fewer rows. For a regression, labels and predicted
    numbers take the place of labels and probabilities.
    """
    _, inverse, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    rates = (np.bincount(inverse, weights=labels) / counts)[inverse]
    order = np.argsort(probabilities, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return np.array([[np.mean(probabilities[part]), np.mean(rates[part]), len(part)] for part in parts])


def calibration_of_draws(
    labels: Array, probabilities: Array, bins: int = BINS
) -> Callable[[Array], tuple[Array, Array, Array]]:
    """A function from how often each row was drawn to the columns of its `calibration`; rows are sorted only once."""
    order = np.argsort(probabilities, kind="stable")
    values, came_true = probabilities[order], np.asarray(labels)[order]
    last = np.flatnonzero(np.append(values[1:] != values[:-1], True))

    def measure(times: Array) -> tuple[Array, Array, Array]:
        times, drawn = times[order], int(times.sum())
        rows = np.cumsum(times)[last]
        numbers = np.arange(bins + 1)
        ends = numbers * (drawn // bins) + np.minimum(numbers, drawn % bins)
        counts = np.diff(ends)
        filled = counts > 0
        # A bin may end between any two rows of one probability; these have the same rate, so sums lie on a line.
        after = np.minimum(np.searchsorted(rows, ends, side="right"), len(rows) - 1)
        knots = np.unique(np.append(after, np.maximum(after - 1, 0)))
        at = np.append(0.0, rows[knots])
        sums = (np.append(0.0, np.cumsum(times * column)[last[knots]]) for column in (values, came_true))
        predicted, observed = (np.diff(np.interp(ends, at, of))[filled] / counts[filled] for of in sums)
        return predicted, observed, counts[filled]

    return measure


def histogram(labels: Array, probabilities: Array) -> Array:
    """Left edge of each of 40 bins of [0, 1], and the share of the rows of label 0 and of label 1 in it."""
    edges = np.linspace(0.0, 1.0, HISTOGRAM_BINS + 1)
    counts = [np.histogram(probabilities[labels == label], edges)[0] for label in (0, 1)]
    return np.column_stack([edges[:-1], *(count / max(int(count.sum()), 1) for count in counts)])


def confusion(labels: Array, classes: Array) -> Array:
    """Label, predicted class and rows of each pair that occurs; classes beyond the 20 most frequent labels are -1."""
    names, counts = np.unique(labels, return_counts=True)
    frequent = names[np.argsort(-counts, kind="stable")][:_MOST_CLASSES]
    sides = np.column_stack([np.where(np.isin(side, frequent), side, -1) for side in (labels, classes)])
    pairs, rows = np.unique(sides.astype(np.int64), axis=0, return_counts=True)
    return np.column_stack([pairs, rows])


def residuals(labels: Array, values: Array) -> Array:
    """Left edge of each of 40 bins, and the share of rows whose error, value minus label, is in it.

    The bins hold all errors but half a percent at either end, which count in the outermost bins.
    """
    errors = np.asarray(values, np.float64) - labels
    low, high = np.quantile(errors, (_TAIL, 1 - _TAIL))
    edges = np.linspace(low, high if high > low else low + 1.0, HISTOGRAM_BINS + 1)
    counts = np.histogram(np.clip(errors, edges[0], edges[-1]), edges)[0]
    return np.column_stack([edges[:-1], counts / len(errors)])


def positions(labels: Array, scores: Array, groups: Array) -> Array:
    """Place from 1 to at most 20, mean label of the rows at it by score, and by label; shape (places, 3)."""
    columns = []
    for by in (scores, labels):
        order = np.lexsort((-np.asarray(by, np.float64), groups))
        _, first, number = np.unique(groups[order], return_index=True, return_inverse=True)
        place = np.arange(len(order)) - first[number]
        kept = place < _MOST_PLACES
        columns.append(np.bincount(place[kept], weights=labels[order][kept]) / np.bincount(place[kept]))
    return np.column_stack([np.arange(1, len(columns[0]) + 1), *columns])
