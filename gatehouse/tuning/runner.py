"""The interface between the controller and trials: a runner trains a suggestion, and reports events."""

import contextvars
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from gatehouse.errors import (
    CorruptArtifactError,
    DeprecatedArtifactError,
    ErasedArtifactError,
    LauncherError,
    MissingArtifactError,
    OutOfMemoryError,
    StoppedError,
    StoreError,
)
from gatehouse.launchers.launcher import STOP, ClusterError, EvictedError, Stop, TrainingFailedError
from gatehouse.tuning.journal import SecondControllerError

logger = logging.getLogger(__name__)

FATAL = (StoreError, SecondControllerError)
"""Errors of what all trials need: they end the experiment. Every other error counts as a failed trial."""
TEMPORARY = (EvictedError, ClusterError)
"""Errors of a trial after which it is begun again at once."""
_OUTSIDE = (
    *(LauncherError, OutOfMemoryError, RuntimeError, OSError, MemoryError, StoppedError),
    *(MissingArtifactError, CorruptArtifactError, ErasedArtifactError, DeprecatedArtifactError),
)
"""Errors that may come from limits, machines, clusters or people: they are outside of the experiment and its key."""


def is_outside(error: BaseException) -> bool:
    """Whether another attempt with the same settings may succeed: with more time or memory, or on another machine."""
    return not error.repeats if isinstance(error, TrainingFailedError) else isinstance(error, _OUTSIDE)


@dataclass(frozen=True)
class Reported:
    """A trial finished an epoch or round: `done` of `total`, with its validation metrics."""

    number: int
    done: int
    total: int
    values: dict[str, float]


@dataclass(frozen=True)
class Ended:
    """A trial ended: with metrics of its model on the validation part and its measurements, or with an error.

    The error is TrainingStoppedError if the handle was asked to stop. `job` is the key of the job.
    """

    number: int
    values: dict[str, float] = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    model: str = ""
    job: str = ""
    error: BaseException | None = None


Event = Reported | Ended


class Handle(Protocol):
    """One running trial."""

    def stop(self) -> None:
        """End the job at once, and keep its checkpoint. The runner still reports how it ended."""


class Runner(Protocol):
    """Runs trials independently of each other."""

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> Handle:
        """Start a trial and return at once.

        Starting a number again continues it: a running job is found, or training resumes from a checkpoint. `notify`
        receives events, from any thread: any number of `Reported`, then `Ended`.
        """


class TrialThreads(ABC):
    """Runs trials on threads, and stops the remaining ones when its context ends."""

    def __init__(self) -> None:
        self._running: list[TrialThread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for trial in self._running:
            trial.stop()
        for trial in self._running:
            trial.thread.join()

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> "TrialThread":
        """Start a trial; see `Runner`."""
        self._running = [trial for trial in self._running if trial.thread.is_alive()]
        trial = TrialThread(self, number, parameters, notify)
        self._running.append(trial)
        trial.thread.start()
        return trial

    @abstractmethod
    def ended(self, trial: "TrialThread") -> Ended:
        """Run a trial to its end on its thread; what it raises is how the trial ended."""


class TrialThread:
    """One running trial; the controller's handle.

    Attributes:
        done: The last epoch or step that it reported, from 1; 0 for none.
        job: Identifies what it runs.
        stopping: Whether the controller asked it to stop; launchers look at it.
    """

    def __init__(
        self, trials: TrialThreads, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]
    ) -> None:
        self.number, self.parameters = number, parameters
        self.stopping, self.done, self.job = Stop(), 0, ""
        self._trials, self._notify = trials, notify
        context = contextvars.copy_context()
        self.thread = threading.Thread(target=context.run, args=(self._run,), name=f"trial-{number}", daemon=True)

    def stop(self) -> None:
        """End the job at once, without waiting: on a cluster this needs several requests."""
        threading.Thread(target=self.stopping.ask, name=f"stop-{self.number}", daemon=True).start()

    def report(self, done: int, total: int, values: dict[str, float]) -> None:
        """Report the values after `done` of `total` epochs or steps."""
        self.done = done
        self._notify(Reported(self.number, done, total, values))

    def _run(self) -> None:
        STOP.set(self.stopping)
        try:
            ended = self._trials.ended(self)
        except BaseException as error:  # The controller waits for an end, whatever the error is.
            logger.debug("trial %d", self.number, exc_info=error)
            ended = Ended(self.number, job=self.job, error=error)
        self._notify(ended)
