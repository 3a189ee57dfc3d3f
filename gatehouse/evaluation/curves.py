"""The curves of one model, thinned to what a page can show."""

from collections.abc import Callable

import numpy as np

from gatehouse.metrics.curves import calibration, confusion, histogram, positions, precision_recall, residuals, roc
from gatehouse.metrics.metric import Array, Predictions

Curves = dict[str, list[list[float]]]
POINTS = 200


def curves_of(names: tuple[str, ...], labels: Array, predictions: Predictions, calibration_bins: int) -> Curves:
    """Curves by name, each a list of points.

    - `roc`: false positive rate, true positive rate, threshold.
    - `precision_recall`: recall, precision; of a long curve without the jumps of the first few rows.
    - `calibration`: mean probability, observed rate and rows of each group of about equal size.
    - `histogram`: left edge of the bin, and the share of the rows of label 0 and of label 1 that is in it.
    - `confusion`: label, predicted class, rows; -1 for classes that are not shown. Of two classes, the second is
      predicted from the threshold of the model on.
    - `confidence`: as `calibration`, of the chance that a model gives the class that it predicts.
    - `predicted`: as `calibration`, of predicted numbers and labels.
    - `residuals`: left edge of the bin, and the share of rows whose error is in it.
    - `positions`: place, mean label of the rows at it by score, and at best.
    """
    drawn: dict[str, Callable[[], Array]] = {
        "roc": lambda: thin(roc(labels, predictions.scores)),
        "precision_recall": lambda: thin(precision_recall(labels, predictions.scores), begin=1 / POINTS),
        "calibration": lambda: calibration(labels, predictions.form("probabilities"), calibration_bins),
        "histogram": lambda: histogram(labels, predictions.form("probabilities")),
        "confusion": lambda: confusion(labels, predictions.form("classes")),
        "confidence": lambda: calibration(
            labels == predictions.form("classes"), predictions.form("probabilities").max(axis=1), calibration_bins
        ),
        "predicted": lambda: calibration(labels, predictions.scores, calibration_bins),
        "residuals": lambda: residuals(labels, predictions.scores),
        "positions": lambda: positions(labels, predictions.scores, predictions.form("groups")),
    }
    return {name: drawn[name]().tolist() for name in names}


def thin(points: Array, begin: float = 0.0) -> Array:
    """At most `POINTS` points of a curve, its ends among them, evenly spaced along its length.

    Length is measured in the first two columns, so that steep and flat parts are drawn equally well. A longer curve
    starts where its first column reaches `begin`: with a few rows precision jumps.
    """
    if len(points) > POINTS:
        points = points[points[:, 0] >= begin]
    if len(points) <= POINTS:
        return points
    steps = np.abs(np.diff(points[:, :2], axis=0)).sum(axis=1)
    length = np.concatenate([[0.0], np.cumsum(steps)])
    chosen = np.searchsorted(length, np.linspace(0.0, length[-1], POINTS))
    kept: Array = np.unique([0, *np.minimum(chosen, len(points) - 1), len(points) - 1])
    thinned: Array = points[kept]
    return thinned
