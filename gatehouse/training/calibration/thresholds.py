"""The threshold of the positive class: chosen by a stated rule, on rows that the model was not judged on."""

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.curves import taken_above
from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.calibration.spec import CostThreshold, FBetaThreshold, FixedThreshold, ThresholdSpec

Floats = npt.NDArray[np.float64]


def choose_threshold(labels: Floats, probabilities: Floats, rule: ThresholdSpec) -> float:
    """The least probability of a row that is called positive. Among equally good thresholds the highest is chosen.

    It lies half way between the lowest probability that is called positive and the next lower one, so that the last
    digits of a probability decide nothing. At least one row is positive.

    Args:
        labels: 0 or 1, shape (rows,); both occur.
        probabilities: Of the positive label, shape (rows,).
        rule: How it is chosen.

    Raises:
        CalibrationError: if no threshold keeps the rule.
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
                f"validation rows: the highest is {float(np.max(hits / taken)):.4g}. Ask for less, or train "
                "a better model."
            )
        best = int(kept[np.argmax(hits[kept])])
    descending = np.append(np.unique(probabilities)[::-1], 0.0)
    last, following = descending[best], descending[best + 1]
    middle = (last + following) / 2
    return float(middle if middle > following else last)
