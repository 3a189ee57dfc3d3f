"""Platt scaling: a logistic function of the model's own log odds."""

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic.elementary import logarithm, logistic
from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.scoring.calibration import Platt, log_odds

Floats = npt.NDArray[np.float64]
_STEPS, _TOLERANCE, _RIDGE = 100, 1e-10, 1e-12


def fit_platt(probabilities: Floats, labels: Floats) -> Platt:
    """Slope and intercept with the least log loss, against targets that are drawn in a little from 0 and 1.

    Platt (1999): the target of a positive row is (P + 1) / (P + 2) of P positive rows, of a negative one 1 / (N + 2),
    so that classes that are apart give a finite slope. Found by Newton's method, halving steps that do not help (Lin,
    Lin and Weng 2007).

    Args:
        probabilities: Of the positive label, shape (rows,); not all equal.
        labels: 0 or 1, shape (rows,); both occur.

    Raises:
        CalibrationError: if the probability does not rise with the label.
    """
    margins, positive = log_odds(probabilities), labels > 0.5
    found = int(positive.sum())
    high, low = (found + 1.0) / (found + 2.0), 1.0 / (len(labels) - found + 2.0)
    targets = np.where(positive, high, low)
    point = np.array([0.0, float(logarithm(np.array([(found + 1.0) / (len(labels) - found + 1.0)]))[0])])
    loss = _loss(point, margins, targets)
    for _ in range(_STEPS):
        predicted = logistic(point[0] * margins + point[1])
        off, weight = predicted - targets, predicted * (1.0 - predicted)
        gradient = np.array([np.sum(off * margins), np.sum(off)])
        if np.abs(gradient).max() <= _TOLERANCE * len(labels):
            break
        aa, ab, bb = np.sum(weight * margins**2) + _RIDGE, np.sum(weight * margins), np.sum(weight) + _RIDGE
        step = np.array([bb * gradient[0] - ab * gradient[1], aa * gradient[1] - ab * gradient[0]]) / (aa * bb - ab**2)
        while (tried := _loss(point - step, margins, targets)) > loss and np.abs(step).max() > _TOLERANCE:
            step = step / 2
        if tried >= loss:
            break
        point, loss = point - step, tried
    if point[0] <= 0:
        raise CalibrationError(
            f"platt: expected higher probabilities for positive labels, found a slope of {point[0]:.3g}: on these rows "
            "the model is no better than chance. Train a better model, or remove `calibration`."
        )
    return Platt(slope=float(point[0]), intercept=float(point[1]))


def _loss(point: Floats, margins: Floats, targets: Floats) -> float:
    """The summed log loss, log(1 + exp(m)) - t m with the exponential of -|m|."""
    values = point[0] * margins + point[1]
    return float(np.sum(np.maximum(values, 0.0) - logarithm(logistic(np.abs(values))) - targets * values))
