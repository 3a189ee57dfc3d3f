"""The calibration of a model as data: how its probabilities are corrected, and the threshold of the positive label."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic.elementary import logarithm, logistic, softmax

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
