"""Calibrations of probabilities: how they are applied, how they are fitted, and how a threshold is chosen."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic import exponential, logarithm, logistic, softmax
from gatehouse.metrics.curves import taken_above
from gatehouse.training.model_spec import (
    CalibrationError,
    CostThreshold,
    FBetaThreshold,
    FixedThreshold,
    ThresholdSpec,
)

Floats = npt.NDArray[np.float64]

FILE = "calibration.json"  # the file of a calibrated model's artifact
_LEAST = 2.0**-52


@dataclass(frozen=True)
class Platt:
    """A logistic function of the log odds; of probabilities of the positive label, shape (rows,)."""

    slope: float
    intercept: float

    def apply(self, probabilities: Floats) -> Floats:
        """The corrected probabilities, of the same shape; a row's depend on that row alone, to the bit."""
        return logistic(self.slope * log_odds(probabilities) + self.intercept)


@dataclass(frozen=True)
class Isotonic:
    """Straight lines between breakpoints, constant beyond them; of probabilities of the positive label, (rows,)."""

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def apply(self, probabilities: Floats) -> Floats:
        """The corrected probabilities, of the same shape; a row's depend on that row alone, to the bit."""
        return np.asarray(np.interp(probabilities, self.scores, self.values))


@dataclass(frozen=True)
class Temperature:
    """The logarithms of shares divided by a number; of probabilities of each class, shape (rows, classes)."""

    temperature: float

    def apply(self, probabilities: Floats) -> Floats:
        """The corrected probabilities, of the same shape; a row's depend on that row alone, to the bit."""
        return softmax(log_shares(probabilities) / self.temperature)


_METHODS: dict[str, Any] = {"platt": Platt, "isotonic": Isotonic, "temperature": Temperature}


@dataclass(frozen=True)
class Calibration:
    """The calibration of one model."""

    calibrator: Platt | Isotonic | Temperature | None  # None leaves the probabilities as they are
    threshold: float  # the least probability at which a row of two classes is positive

    def apply(self, probabilities: Floats) -> Floats:
        """The corrected probabilities, of the same shape."""
        return probabilities if self.calibrator is None else self.calibrator.apply(probabilities)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for `calibration.json`."""
        fitted = self.calibrator
        name = next((name for name, kind in _METHODS.items() if isinstance(fitted, kind)), "none")
        return {"method": name, "parameters": asdict(fitted) if fitted else {}, "threshold": self.threshold}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Calibration":
        """Rebuild from `to_json`; other keys of the file are for people."""
        parameters = {
            key: tuple(value) if isinstance(value, list) else value for key, value in body["parameters"].items()
        }
        method = _METHODS.get(body["method"])
        return cls(method(**parameters) if method else None, body["threshold"])


def log_odds(probabilities: Floats) -> Floats:
    """log(p / (1 - p)) of every probability, shape (rows,); 0 and 1 count as the numbers next to them."""
    inside = np.clip(probabilities, _LEAST, 1.0 - _LEAST)
    return logarithm(inside) - logarithm(1.0 - inside)


def log_shares(probabilities: Floats) -> Floats:
    """The logarithm of every probability, of the same shape; 0 counts as 2^-52."""
    return logarithm(np.maximum(probabilities, _LEAST))


_PLATT_STEPS, _TOLERANCE, _RIDGE = 100, 1e-10, 1e-12
_TEMPERATURE_STEPS, _COLDEST, _HOTTEST = 200, 1e-3, 1e3


def fit_platt(probabilities: Floats, labels: Floats) -> Platt:
    """Slope and intercept with the least log loss of labels 0 and 1, shape (rows,), by their probabilities.

    Platt (1999): with P positive and N negative rows, the targets are (P + 1) / (P + 2) and 1 / (N + 2), so that
    separable classes give a finite slope. Newton's method; a step that does not help is halved (Lin, Lin and Weng
    2007). Raises `CalibrationError` if the probability does not rise with the label.
    """
    margins, is_positive = log_odds(probabilities), labels > 0.5
    positives = int(is_positive.sum())
    high, low = (positives + 1.0) / (positives + 2.0), 1.0 / (len(labels) - positives + 2.0)
    targets = np.where(is_positive, high, low)
    point = np.array([0.0, float(logarithm(np.array([(positives + 1.0) / (len(labels) - positives + 1.0)]))[0])])

    def loss_at(point: Floats) -> float:
        """The summed log loss, log(1 + exp(m)) - t m with the exponential of -|m|."""
        values = point[0] * margins + point[1]
        return float(np.sum(np.maximum(values, 0.0) - logarithm(logistic(np.abs(values))) - targets * values))

    loss = loss_at(point)
    for _ in range(_PLATT_STEPS):
        predicted = logistic(point[0] * margins + point[1])
        off, weight = predicted - targets, predicted * (1.0 - predicted)
        gradient = np.array([np.sum(off * margins), np.sum(off)])
        if np.abs(gradient).max() <= _TOLERANCE * len(labels):
            break
        aa, ab, bb = np.sum(weight * margins**2) + _RIDGE, np.sum(weight * margins), np.sum(weight) + _RIDGE
        step = np.array([bb * gradient[0] - ab * gradient[1], aa * gradient[1] - ab * gradient[0]]) / (aa * bb - ab**2)
        while (tried := loss_at(point - step)) > loss and np.abs(step).max() > _TOLERANCE:
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


def fit_isotonic(probabilities: Floats, labels: Floats) -> Isotonic:
    """The rising function with the least squared error, by pooling adjacent violators (Ayer et al. 1955).

    Rows of one probability are one point. Sums of labels are whole numbers, so shares are compared exactly. Each share
    is kept between 1 / (rows + 2) and 1 less that: no number of rows shows that something never happens, and one such
    row would make the log loss infinite. Raises `CalibrationError` if the rate of positive labels rises nowhere.
    """
    scores, inverse, counts = np.unique(probabilities, return_inverse=True, return_counts=True)
    positives = np.bincount(inverse[labels > 0.5], minlength=len(scores))
    # Blocks as (positive rows, all rows, place of the first score).
    blocks: list[tuple[int, int, int]] = []
    for first, (hits, rows) in enumerate(zip(positives.tolist(), counts.tolist(), strict=True)):
        start = first
        while blocks and blocks[-1][0] * rows >= hits * blocks[-1][1]:
            before_hits, before_rows, start = blocks.pop()
            hits, rows = hits + before_hits, rows + before_rows
        blocks.append((hits, rows, start))
    if len(blocks) == 1:
        raise CalibrationError(
            "isotonic: expected more positive labels at higher probabilities, found that they do not rise: on these "
            "rows the model is no better than chance. Train a better model, or remove `calibration`."
        )
    ends = [*(start - 1 for _, _, start in blocks[1:]), len(scores) - 1]
    least = 1.0 / (len(labels) + 2.0)
    points: list[tuple[float, float]] = []
    for (hits, rows, start), end in zip(blocks, ends, strict=True):
        value = min(max(hits / rows, least), 1.0 - least)
        points += [(float(scores[index]), value) for index in dict.fromkeys((start, end))]
    return Isotonic(tuple(score for score, _ in points), tuple(value for _, value in points))


def fit_temperature(probabilities: Floats, labels: Floats) -> Temperature:
    """The temperature with the least log loss (Guo et al. 2017), by Newton's method within bounds that close in.

    `probabilities` have the shape (rows, classes), `labels` are numbers of classes, shape (rows,). Raises
    `CalibrationError` if no temperature from 0.001 to 1000 is best.
    """
    logs = log_shares(probabilities)
    own = logs[np.arange(len(logs)), labels.astype(np.int64)]
    if _derivatives(_COLDEST, logs, own)[0] >= 0 or _derivatives(_HOTTEST, logs, own)[0] <= 0:
        raise CalibrationError(
            "temperature: expected a model that is right on some validation rows and wrong on others, found one that "
            "is always right, or no better than chance. Give more rows, train another model, or remove `calibration`."
        )
    low, high, inverse = _COLDEST, _HOTTEST, 1.0
    for _ in range(_TEMPERATURE_STEPS):
        slope, curvature = _derivatives(inverse, logs, own)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0 else low
        after = step if low < step < high else (low + high) / 2
        if after == inverse or slope == 0:
            break
        inverse = after
    return Temperature(float(1.0 / inverse))


def _derivatives(inverse: float, logs: Floats, own: Floats) -> tuple[float, float]:
    """First and second derivative of the summed log loss by the inverse temperature."""
    powers = exponential(inverse * (logs - logs.max(axis=1, keepdims=True)))
    shares = powers / powers.sum(axis=1, keepdims=True)
    means = (shares * logs).sum(axis=1)
    return float(np.sum(means - own)), float(np.sum((shares * logs * logs).sum(axis=1) - means * means))


def choose_threshold(labels: Floats, probabilities: Floats, rule: ThresholdSpec) -> float:
    """The least probability of a row that is called positive. Among equally good thresholds the highest is chosen.

    It lies half way between the lowest probability that is called positive and the next lower one, so that the last
    digits of a probability decide nothing. At least one row is positive. Raises `CalibrationError` if no threshold has
    the precision of the rule.
    """
    if isinstance(rule, FixedThreshold):
        return rule.at
    hits, taken = taken_above(labels, probabilities)
    positives = float(hits[-1])
    misses, alarms = positives - hits, taken - hits
    if isinstance(rule, FBetaThreshold):
        weight = rule.beta**2
        best = int(np.argmax((1 + weight) * hits / (hits + alarms + weight * positives)))
    elif isinstance(rule, CostThreshold):
        rest = len(labels) - taken - misses
        cost = rule.true_positive * hits + rule.false_positive * alarms + rule.false_negative * misses
        best = int(np.argmin(cost + rule.true_negative * rest))
    else:
        kept = np.flatnonzero(hits >= rule.at_least * taken)
        if not len(kept):
            raise CalibrationError(
                f"threshold: no threshold has a precision of at least {rule.at_least:g} on the {len(labels):,} "
                f"validation rows: the highest is {float(np.max(hits / taken)):.4g}."
            )
        best = int(kept[np.argmax(hits[kept])])
    descending = np.append(np.unique(probabilities)[::-1], 0.0)
    last, following = descending[best], descending[best + 1]
    middle = (last + following) / 2
    return float(middle if middle > following else last)
