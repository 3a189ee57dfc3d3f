"""The curves of one model, thinned to what a page can show."""

from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.components.metrics.binary import calibration_curve, precision_recall_curve, roc_curve

Array = npt.NDArray[Any]
Curves = dict[str, list[list[float]]]
POINTS = 200
BINS = 40


def curves_of(labels: Array, scores: Array, calibration_bins: int) -> Curves:
    """Curves by name, each a list of points.

    - `roc`: false positive rate, true positive rate, threshold.
    - `precision_recall`: recall, precision; of a long curve without the jumps of the first few rows.
    - `calibration`: mean probability, observed rate and rows of each group of about equal size.
    - `histogram`: left edge of the bin, and the share of the rows of label 0 and of label 1 that is in it.

    Args:
        labels: 0 or 1, shape (rows,), of both classes.
        scores: Probabilities, shape (rows,).
        calibration_bins: Number of groups.
    """
    recall_precision = np.column_stack(precision_recall_curve(labels, scores))
    if len(recall_precision) > POINTS:
        recall_precision = recall_precision[recall_precision[:, 0] >= 1 / POINTS]
    return {
        "roc": _points(thin(np.column_stack(roc_curve(labels, scores)))),
        "precision_recall": _points(thin(recall_precision)),
        "calibration": _points(np.column_stack(calibration_curve(labels, scores, calibration_bins))),
        "histogram": _points(_histogram(labels, scores)),
    }


def thin(points: Array) -> Array:
    """At most `POINTS` points of a curve, its ends among them, evenly spaced along its length.

    Length is measured in the first two columns, so that steep and flat parts are drawn equally well.

    Args:
        points: Shape (points, columns), columns at least 2.
    """
    if len(points) <= POINTS:
        return points
    steps = np.abs(np.diff(points[:, :2], axis=0)).sum(axis=1)
    length = np.concatenate([[0.0], np.cumsum(steps)])
    chosen = np.searchsorted(length, np.linspace(0.0, length[-1], POINTS))
    kept: Array = np.unique([0, *np.minimum(chosen, len(points) - 1), len(points) - 1])
    thinned: Array = points[kept]
    return thinned


def _histogram(labels: Array, scores: Array) -> Array:
    edges = np.linspace(0.0, 1.0, BINS + 1)
    shares = []
    for label in (0, 1):
        counts = np.histogram(scores[labels == label], edges)[0]
        shares.append(counts / max(int(counts.sum()), 1))
    return np.column_stack([edges[:-1], *shares])


def _points(points: Array) -> list[list[float]]:
    return [[float(value) for value in point] for point in points]
