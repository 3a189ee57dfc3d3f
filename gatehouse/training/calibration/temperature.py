"""Temperature scaling: one number that makes the probabilities of several classes bolder or more careful."""

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic.elementary import exponential
from gatehouse.training.calibration.errors import CalibrationError
from gatehouse.training.scoring.calibration import Temperature, log_shares

Floats = npt.NDArray[np.float64]
_STEPS, _LEAST, _MOST = 200, 1e-3, 1e3


def fit_temperature(probabilities: Floats, labels: Floats) -> Temperature:
    """The temperature with the least log loss (Guo et al. 2017), by Newton's method within bounds that close in.

    Args:
        probabilities: Of each class, shape (rows, classes).
        labels: Number of the class, shape (rows,).

    Raises:
        CalibrationError: if no temperature from 0.001 to 1000 is best.
    """
    logs = log_shares(probabilities)
    own = logs[np.arange(len(logs)), labels.astype(np.int64)]
    if _derivatives(_LEAST, logs, own)[0] >= 0:
        raise _unusable("is no better than chance")
    if _derivatives(_MOST, logs, own)[0] <= 0:
        raise _unusable("is right in every row")
    low, high, inverse = _LEAST, _MOST, 1.0
    for _ in range(_STEPS):
        slope, curvature = _derivatives(inverse, logs, own)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0 else low
        after = step if low < step < high else (low + high) / 2
        if after == inverse or slope == 0:
            break
        inverse = after
    return Temperature(float(1.0 / inverse))


def _unusable(found: str) -> CalibrationError:
    return CalibrationError(
        "temperature: expected that the model is right on some validation rows and wrong on others, found that it "
        f"{found}: no temperature is best. Give more rows, train another model, or remove `calibration`."
    )


def _derivatives(inverse: float, logs: Floats, own: Floats) -> tuple[float, float]:
    """First and second derivative of the summed log loss by the inverse temperature."""
    powers = exponential(inverse * (logs - logs.max(axis=1, keepdims=True)))
    shares = powers / powers.sum(axis=1, keepdims=True)
    means = (shares * logs).sum(axis=1)
    return float(np.sum(means - own)), float(np.sum((shares * logs * logs).sum(axis=1) - means * means))
