"""Metrics of predicted numbers; labels and values have the shape (rows,)."""

import sys
from typing import Any

from gatehouse.metrics.lazy_numpy import np
from gatehouse.metrics.metric import Array, OnDraw, mean_metric, metric

_LOWER: Any = {"better": "lower", "tasks": ("regression",), "reads": "scores", "form": ".4g"}
_TINY = sys.float_info.epsilon


@mean_metric(title="mean absolute error", **_LOWER)
def mae(labels: Array, values: Array) -> Array:
    """Absolute error of each row."""
    return np.asarray(np.abs(values - labels))


@mean_metric(title="mean squared error", **_LOWER)
def mse(labels: Array, values: Array) -> Array:
    """Squared error of each row."""
    return np.asarray((values - labels) ** 2)


@mean_metric(title="root mean squared error", root=True, **_LOWER)
def rmse(labels: Array, values: Array) -> Array:
    """Squared error of each row; the root of the mean has the unit of the label."""
    return np.asarray((values - labels) ** 2)


def _pinball(labels: Array, values: Array, quantile: float) -> Array:
    """Error of each row times the quantile if the label is above the value, else times one minus the quantile.

    Koenker and Bassett (1978).
    """
    return np.asarray(np.maximum(quantile * (labels - values), (quantile - 1) * (labels - values)))


@mean_metric(title="pinball loss of P10", **_LOWER)
def pinball_p10(labels: Array, values: Array) -> Array:
    """Pinball loss of the 10th percentile."""
    return _pinball(labels, values, 0.1)


@mean_metric(title="pinball loss of P90", **_LOWER)
def pinball_p90(labels: Array, values: Array) -> Array:
    """Pinball loss of the 90th percentile."""
    return _pinball(labels, values, 0.9)


def _mape_on_draws(labels: Array, values: Array) -> OnDraw:
    rows = np.flatnonzero(np.abs(labels) >= _TINY)
    errors = np.abs(values[rows] - labels[rows]) / np.abs(labels[rows])

    def mean(times: Array) -> float:
        drawn = times[rows]
        # Without rows the value of a model that always predicts 0; 0.0 would be that of a perfect one.
        return float(np.einsum("i,i", drawn, errors) / drawn.sum()) if drawn.any() else 1.0

    return mean


@metric(
    title="mean absolute percentage error",
    **_LOWER,
    prepare=_mape_on_draws,
    caveat="rows whose label is 0 are left out, and labels near 0 outweigh all others; use another metric if there are "
    "such labels",
)
def mape(labels: Array, values: Array) -> float:
    """Mean absolute error as a share of the absolute label: 0.1 is 10 %.

    Rows with a label of 0 (below 2.2e-16) are left out, and the value is 1.0 if no other row is left. Scikit-learn
    divides by 2.2e-16 there, so one such row makes the mean 1e15.
    """
    return float(_mape_on_draws(labels, values)(np.ones(len(labels))))


def _explained(errors: float, spread: float) -> float:
    return 1 - errors / spread if spread else float(errors == 0)


def _r2_on_draws(labels: Array, values: Array) -> OnDraw:
    errors = (values - labels) ** 2

    def measure(times: Array) -> float:
        # Relative to a drawn label, labels that are all equal are exactly 0.
        apart = labels - labels[np.argmax(times > 0)]
        apart = apart - np.sum(times * apart) / times.sum()
        return _explained(float(np.sum(times * errors)), float(np.sum(times * apart**2)))

    return measure


@metric(title="R²", better="higher", tasks=("regression",), reads="scores", prepare=_r2_on_draws)
def r2(labels: Array, values: Array) -> float:
    """Share of the labels' variance that values explain; for equal labels 1 if all values are right, else 0."""
    errors = float(np.sum((values - labels) ** 2))
    # A sum of squares around a rounded mean is not zero where it should be.
    equal = labels.min() == labels.max()
    return _explained(errors, 0.0 if equal else float(np.sum((labels - np.mean(labels)) ** 2)))
