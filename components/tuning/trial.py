"""One trial of an experiment as data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

State = Literal["running", "succeeded", "early_stopped", "failed", "killed"]
"""In Katib's words; killed is one that the experiment's own end stopped."""


@dataclass(frozen=True)
class Trial:
    """One trial.

    Attributes:
        number: From 0 on, in the order in which trials were suggested.
        state: How far it is, or how it ended.
        parameters: What was tried: the values of the open parameters, by dotted name.
        values: Of the objectives, by metric; empty where the trial did not succeed.
        measures: What was measured of its model, such as `size_bytes`.
        feasible: Whether it succeeded and keeps to all constraints.
        intermediate: Step and value of the objective, in the order of steps.
        reason: Why it did not succeed: the class of an error, or at which step it was stopped; empty where it did.
        model: Reference of its model; empty where there is none.
        metrics: All that training measured.
        job: Key of its training job, which names the code too, and so is in no artifact.
        beside: Numbers of the earlier trials that were running when it was suggested; all other earlier ones had ended.
        parent: Number of the trial whose checkpoint it goes on from, in a population; None where it begins anew.
        told: What the error said, for people: words are in no artifact either.
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
    told: str = ""

    @property
    def ended(self) -> bool:
        """Whether it is over."""
        return self.state != "running"

    def to_json(self) -> dict[str, Any]:
        """The trial as the artifact holds it: data only."""
        return {name: value for name, value in asdict(self).items() if name not in ("job", "told")}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Trial":
        """The trial of the fields in `body`, as `asdict` or `to_json` wrote them."""
        intermediate = tuple((int(step), float(value)) for step, value in body["intermediate"])
        return cls(**{**body, "intermediate": intermediate, "beside": tuple(body["beside"])})


def words(values: Mapping[str, Any]) -> str:
    """Values by name as a line says them, a number with five figures: `log_loss 0.57312, size_bytes 1234567`."""
    return ", ".join(f"{name} {_short(value)}" for name, value in values.items())


def _short(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() else f"{value:.5g}"
