"""The interface between the controller and trials: a runner trains a suggestion, and reports events."""

import contextvars
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from gatehouse.errors import (
    CorruptArtifactError,
    ErasedArtifactError,
    LauncherError,
    MissingArtifactError,
    OutOfMemoryError,
    StoppedError,
    StoreError,
)
from gatehouse.launchers.launcher import STOP, ClusterError, EvictedError, Stop, TrainingFailedError
from gatehouse.tuning.journal import SecondControllerError

FATAL = (StoreError, SecondControllerError)
"""Errors of what all trials need: they end the experiment. Every other error counts as a failed trial."""
TEMPORARY = (EvictedError, ClusterError)
"""Errors of a trial after which it is begun again at once."""
_OUTSIDE = (
    *(LauncherError, OutOfMemoryError, RuntimeError, OSError, MemoryError, StoppedError),
    *(MissingArtifactError, CorruptArtifactError, ErasedArtifactError),
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


@dataclass
class RunningTrial:
    """One trial on a thread; the controller's handle.

    Attributes:
        done: The last epoch or step that it reported, from 1; 0 for none.
        job: Identifies what it runs.
        stopping: Whether the controller asked it to stop; launchers look at it.
    """

    number: int
    parameters: dict[str, Any]
    notify: Callable[[Event], None]
    stopping: Stop = field(default_factory=Stop)
    done: int = 0
    job: str = ""

    def stop(self) -> None:
        """End the job at once, without waiting: on a cluster this needs several requests."""
        threading.Thread(target=self.stopping.ask, name=f"stop-{self.number}", daemon=True).start()

    def report(self, done: int, total: int, values: dict[str, float]) -> None:
        """Report the values after `done` of `total` epochs or steps."""
        self.done = done
        self.notify(Reported(self.number, done, total, values))


class TrialThreads(ABC):
    """Runs trials on threads, and stops the remaining ones when its context ends."""

    def __init__(self) -> None:
        self._running: dict[threading.Thread, RunningTrial] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for trial in self._running.values():
            trial.stop()
        for thread in self._running:
            thread.join()

    def start(self, number: int, parameters: dict[str, Any], notify: Callable[[Event], None]) -> RunningTrial:
        """Start a trial; see `Runner`."""
        self._running = {thread: trial for thread, trial in self._running.items() if thread.is_alive()}
        trial, run = RunningTrial(number, parameters, notify), contextvars.copy_context().run
        thread = threading.Thread(target=run, args=(self._run, trial), name=f"trial-{number}", daemon=True)
        self._running[thread] = trial
        thread.start()
        return trial

    @abstractmethod
    def ended(self, trial: RunningTrial) -> Ended:
        """Run a trial to its end on its thread; what it raises is how the trial ended."""

    def _run(self, trial: RunningTrial) -> None:
        STOP.set(trial.stopping)
        try:
            ended = self.ended(trial)
        except BaseException as error:  # The controller waits for an end, whatever the error is.
            ended = Ended(trial.number, job=trial.job, error=error)
        trial.notify(ended)
