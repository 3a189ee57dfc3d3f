"""What makes a training run of a suggestion: the interface between the controller and trials."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Reported:
    """An epoch, or a round, of a trial ended.

    Attributes:
        number: Of the trial.
        done: Epochs, or rounds, that are done.
        total: Of a whole trial.
        values: Validation metrics by name.
    """

    number: int
    done: int
    total: int
    values: dict[str, float]


@dataclass(frozen=True)
class Succeeded:
    """A trial reached its end.

    Attributes:
        number: Of the trial.
        values: The metrics of its model on the validation part, by name.
        measures: What was measured of the model, such as `size_bytes`.
        model: Reference of the model.
        job: Key of the training job.
    """

    number: int
    values: dict[str, float]
    measures: dict[str, float] = field(default_factory=dict)
    model: str = ""
    job: str = ""


@dataclass(frozen=True)
class Failed:
    """A trial ended without a model.

    Attributes:
        number: Of the trial.
        error: Class of the error.
        told: What it said, for people.
        retry: Whether the next attempt may end otherwise, as after an eviction.
        job: Key of the training job.
    """

    number: int
    error: str
    told: str
    retry: bool = False
    job: str = ""


@dataclass(frozen=True)
class Stopped:
    """A trial ended because its handle was told to stop."""

    number: int
    job: str = ""


@dataclass(frozen=True)
class Broken:
    """A trial lacks what every trial needs, as a store that answers: the controller ends with the error."""

    number: int
    error: Exception


Event = Reported | Succeeded | Failed | Stopped | Broken


class Handle(Protocol):
    """One trial that runs."""

    def stop(self) -> None:
        """End the job at once, and keep its checkpoint. The runner still tells how it ended."""


class Runner(Protocol):
    """Runs trials, each on its own."""

    def start(self, number: int, parameters: dict[str, Any], told: Callable[[Event], None]) -> Handle:
        """Begin a trial and return at once.

        Starting a number again adopts what there is of it: a running job is found, and a checkpoint is gone on from.

        Args:
            number: Of the trial.
            parameters: What it has in place of the settings of training, by dotted name.
            told: Takes what happens, from any thread: any number of `Reported`, then one of the others.
        """
