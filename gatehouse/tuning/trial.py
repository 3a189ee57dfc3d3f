"""One trial of an experiment as data."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["running", "succeeded", "early_stopped", "failed", "killed"]
"""States in Katib's terms; `killed` means stopped by the end of the experiment."""

_MEASURED = ("metrics", "measures")
_UNPUBLISHED = ("job", "message", "provisional", "seconds", "elapsed")


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        intermediate: The steps at which it reported the objective, each with the value.
        reason: Why it ended without success, or why it is being stopped.
        beside: Numbers of the earlier trials that were running when it was suggested.
        parent: In a population, number of the trial whose checkpoint it continues; None for a new start.
        provisional: Whether it ended for a reason outside of the experiment: the next run tries it again.
        seconds: How long its jobs ran.
        elapsed: Seconds of the experiment at the end of the trial, by the clocks of its controllers.
    """

    number: int
    state: State
    parameters: dict[str, Any]
    values: dict[str, float] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    feasible: bool = False
    intermediate: tuple[tuple[int, float], ...] = ()
    reason: str = ""
    model: str = ""
    metrics: dict[str, float] = field(default_factory=dict)
    job: str = ""
    beside: tuple[int, ...] = ()
    parent: int | None = None
    message: str = ""
    provisional: bool = False
    seconds: float = field(default=0.0, compare=False)
    elapsed: float = field(default=0.0, compare=False)

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return self.state != "running"

    def to_json(self) -> dict[str, Any]:
        """The trial as JSON for the artifact: what the same search gives again; without numbers that JSON lacks."""
        body = {name: value for name, value in asdict(self).items() if name not in _UNPUBLISHED}
        finite = {kind: {name: n for name, n in body[kind].items() if math.isfinite(n)} for kind in _MEASURED}
        return body | finite

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "Trial":
        """The trial from the fields in `body`, as `asdict` or `to_json` wrote them."""
        intermediate = tuple((int(step), float(value)) for step, value in body["intermediate"])
        return cls(**{**body, "intermediate": intermediate, "beside": tuple(body["beside"])})


def beside(columns: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and parameters as one row; a parameter with the name of a column is `parameters.NAME`.

    Example:
        >>> beside({"trial": 3, "state": "succeeded"}, {"state": "CA", "rate": 0.1})
        {'trial': 3, 'state': 'succeeded', 'parameters.state': 'CA', 'rate': 0.1}
    """
    return {**columns, **{f"parameters.{name}" if name in columns else name: parameters[name] for name in parameters}}


def words(values: Mapping[str, Any]) -> str:
    """Values by name in one line, numbers with five digits: `log_loss 0.57312, size_bytes 1234567`."""
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() else f"{value:.5g}"
