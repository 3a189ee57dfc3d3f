"""The interface between the controller and trials: a runner trains a suggestion, and reports events."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Reported:
    """A trial finished an epoch or round: `done` of `total`, with its validation metrics."""

    number: int
    done: int
    total: int
    values: dict[str, float]


@dataclass(frozen=True)
class Succeeded:
    """A trial reached its end: metrics of its model on the validation part, its measurements, and the job's key."""

    number: int
    values: dict[str, float]
    measures: dict[str, float] = field(default_factory=dict)
    model: str = ""
    job: str = ""


@dataclass(frozen=True)
class Failed:
    """A trial ended without a model, with the class of an error.

    With `retry` it is started again at once, for example after an eviction. It is `provisional` if the reason is
    outside of the experiment, such as a time limit: the next run may succeed.
    """

    number: int
    error: str
    message: str
    retry: bool = False
    job: str = ""
    provisional: bool = False


@dataclass(frozen=True)
class Stopped:
    """A trial ended because its handle was asked to stop it."""

    number: int
    job: str = ""


@dataclass(frozen=True)
class Broken:
    """Something that all trials need is broken, such as the store: the controller ends with the error."""

    number: int
    error: Exception


Event = Reported | Succeeded | Failed | Stopped | Broken


class Handle(Protocol):
    """One running trial."""

    def stop(self) -> None:
        """End the job at once, and keep its checkpoint. The runner still reports how it ended."""


class Runner(Protocol):
    """Runs trials independently of each other."""

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> Handle:
        """Start a trial and return at once.

        Starting a number again continues it: a running job is found, or training resumes from a checkpoint. `notify`
        receives events, from any thread: any number of `Reported`, then one of the other events.
        """
