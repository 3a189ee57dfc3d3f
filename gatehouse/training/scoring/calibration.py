"""What is done to the probabilities of a calibrated model, and from which one on a row is positive: data, not code."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic.elementary import logarithm, logistic, softmax

Floats = npt.NDArray[np.float64]

FILE = "calibration.json"
"""In the artifact of a model that is calibrated."""
_LEAST = 2.0**-52


@dataclass(frozen=True)
class Platt:
    """A logistic function of the log odds; of probabilities of the positive label, shape (rows,)."""

    slope: float
    intercept: float

    def apply(self, probabilities: Floats) -> Floats:
        """The probabilities as they come true, of the same shape; a row's depend on that row alone, to the bit."""
        return logistic(self.slope * log_odds(probabilities) + self.intercept)


@dataclass(frozen=True)
class Isotonic:
    """Straight lines between breakpoints, constant beyond them; of probabilities of the positive label, (rows,)."""

    scores: tuple[float, ...]
    values: tuple[float, ...]

    def apply(self, probabilities: Floats) -> Floats:
        """The probabilities as they come true, of the same shape; a row's depend on that row alone, to the bit."""
        return np.asarray(np.interp(probabilities, self.scores, self.values))


@dataclass(frozen=True)
class Temperature:
    """The logarithms of shares divided by a number; of probabilities of each class, shape (rows, classes)."""

    temperature: float

    def apply(self, probabilities: Floats) -> Floats:
        """The probabilities as they come true, of the same shape; a row's depend on that row alone, to the bit."""
        return softmax(log_shares(probabilities) / self.temperature)


_METHODS: dict[str, Any] = {
    "platt": Platt,
    "isotonic": Isotonic,
    "temperature": Temperature,
}


@dataclass(frozen=True)
class Calibration:
    """What travels with a model.

    Attributes:
        calibrator: Corrects its probabilities; None leaves them as they are.
        threshold: From which probability on a row of two classes is positive.
    """

    calibrator: Platt | Isotonic | Temperature | None
    threshold: float

    def apply(self, probabilities: Floats) -> Floats:
        """The probabilities as they come true, of the same shape."""
        return probabilities if self.calibrator is None else self.calibrator.apply(probabilities)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for `calibration.json`."""
        given = self.calibrator
        name = next((name for name, kind in _METHODS.items() if isinstance(given, kind)), "none")
        return {"method": name, "parameters": asdict(given) if given else {}, "threshold": self.threshold}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Calibration":
        """Rebuild from `to_json`; what else the file tells is for people."""
        named = {key: tuple(each) if isinstance(each, list) else each for key, each in body["parameters"].items()}
        method = _METHODS.get(body["method"])
        return cls(method(**named) if method else None, body["threshold"])


def log_odds(probabilities: Floats) -> Floats:
    """log(p / (1 - p)) of every probability, shape (rows,); of 0 and 1 as of the numbers next to them."""
    inside = np.clip(probabilities, _LEAST, 1.0 - _LEAST)
    return logarithm(inside) - logarithm(1.0 - inside)


def log_shares(probabilities: Floats) -> Floats:
    """The logarithm of every probability, of the same shape; of 0 as of 2^-52."""
    return logarithm(np.maximum(probabilities, _LEAST))
