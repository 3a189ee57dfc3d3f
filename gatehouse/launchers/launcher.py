"""The interface of launchers: a launcher runs one training job, and returns only if the job left its model.

The time limits of training. Each limit is longer than those above it in the table, which must end first.

| limit | waits for | ends in |
| --- | --- | --- |
| `launch.hang_seconds` | a step of a rank | the stacks of all ranks, and exit code 124 |
| `collective_seconds` | the other ranks in a collective | an error of the rank, and a restart at the checkpoint |
| `launch.scheduling_minutes` | pods that run | `UnschedulableError`, `SchedulingTimeoutError` |
| `training.operation.timeout_minutes` | the end, from when the job runs | `TrainingTimeoutError` |
| `job_minutes` | the launcher that should have ended the job | the operator ends the job |
| `stage_minutes` | the whole task | KFP ends the task |

A hang must be found before a collective times out. Otherwise the ranks that wait for the hanging rank fail first, all
ranks are restarted, and no stacks are saved. A rank that waits for a dead rank fails at once; torchrun's own heartbeats
find a lost machine.
"""

import fcntl
import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from gatehouse.errors import LauncherError, StoppedError
from gatehouse.store.canonical import sha256_of

if TYPE_CHECKING:
    from gatehouse.store.store import ArtifactStore

JOB = "job.json"  # file of a job's directory that tells the program what to train
RESULT, WEIGHTS = "result.json", "weights"
"""Files that a successful program leaves; the result names the SHA-256 of the weights."""
FAILURE = "failure.json"  # file that the program leaves when it fails in a way that a retry would repeat
OUTPUT = "output"  # folder of a job's directory that a command of the user's own fills: it is packed into the weights
METRICS, LOG, LOCATION, PRINTED = "metrics", "worker.log", "place.json", "printed.json"
"""Files that say how the job went: its metrics, its log, where it ran, and metrics of earlier logs."""
ATTEMPTS = "attempts.jsonl"  # file of a job's directory: when workers started on this machine, and how they ended
CHECKPOINTS = "checkpoints"  # folder of a job's directory from which it resumes
CHECKPOINT_STORE, CHECKPOINT_NAME = "GATEHOUSE_CHECKPOINT_STORE", "GATEHOUSE_CHECKPOINT_NAME"
"""Environment variables: the artifact store that gets a copy of every checkpoint, and the run's name there."""
RENDEZVOUS = "GATEHOUSE_RENDEZVOUS"  # environment variable of the workers of several nodes: where these meet
TAIL_LINES, STACK_LINES = 20, 60  # numbers of lines that an error shows: of a log, and of the stacks of one rank
HUNG_CODE, RETRY_CODE, PREEMPTED_CODE = 124, 128, 143
"""Exit codes of the wrapper: a rank hung; the lowest code after which the job may be started again, because the cause
may pass; the job was preempted, and can resume at its last checkpoint.
"""
EVICTED = "Training failed: it was preempted or evicted more often than it may start again."
HUNG = "a rank made no progress for launch.hang_seconds."


class TrainingFailedError(LauncherError):
    """The job ended without a model; `repeats` if the program reports that every attempt would fail the same way."""

    def __init__(self, message: str, *, repeats: bool = False) -> None:
        super().__init__(message)
        self.repeats = self.permanent = repeats


class TrainingTimeoutError(LauncherError):
    """The job exceeded its time limit, and was stopped."""


class SchedulingTimeoutError(LauncherError):
    """The pods of the job did not run within the time limit, and the job was withdrawn."""


class UnschedulableError(LauncherError):
    """The scheduler found no node for a pod of the job within the time limit, and the job was withdrawn."""


class ImagePullError(LauncherError):
    """The image of the job cannot be pulled."""


class EvictedError(LauncherError):
    """The job was preempted, evicted or lost its node more often than it may restart."""


class TrainingCancelledError(LauncherError):
    """Somebody deleted the job while it ran."""


class TrainingStoppedError(LauncherError, StoppedError):
    """The process that started the training stopped it; a checkpoint keeps the progress."""


class ClusterError(LauncherError):
    """The cluster refuses a request, or does not answer."""


@dataclass(frozen=True)
class TrainingJob:
    """One run of a training program."""

    directory: Path  # holds `job.json` and the data; receives checkpoints, weights and the result
    program: str  # module that every worker runs, with the directory as its argument
    processes: int  # workers on all machines together
    timeout_minutes: float  # waiting for machines is not counted
    restarts: int = 3  # how often the workers of a machine start again after one of them has failed
    own: tuple[str, ...] = ()  # `package.module:name` of a user's own model and metric
    divided: bool = False  # whether folders of numbers, `train/0`, hold rows that only some of the processes need


class Launcher(Protocol):
    """Runs training jobs; `remote` if they run on other machines."""

    remote: bool

    def run(self, job: TrainingJob) -> None:
        """Run `job`, resuming at its last checkpoint if there is one, and return when its result and weights exist.

        However this call ends, also by SIGTERM, no process of the job keeps running. The first line of an error message
        is the same for the same cause. It is followed by the cluster's message and the last lines of the failed worker.

        Raises:
            LauncherError: if the job left no model that verifies; there is a class for every cause.
        """

    def forget(self, job: TrainingJob) -> None:
        """Delete the files kept of a job that succeeded. Call it when its model is published.

        Until then a restarted launcher returns the kept result without training.
        """


def result_problem(directory: Path) -> str:
    """The problem of the result of a job that reports success; empty if the weights match it."""
    try:
        result = json.loads((directory / RESULT).read_text())
        digest = sha256_of(directory / WEIGHTS)
    except (OSError, ValueError) as error:
        return f"the job reports success, but there is no result and weights ({type(error).__name__})."
    if digest != result.get("weights_sha256"):
        return f"the weights have SHA-256 {digest}, expected {result.get('weights_sha256')} as the result says."
    return ""


def stopped() -> TrainingStoppedError:
    """The error of a job that was stopped."""
    return TrainingStoppedError(
        "The experiment stopped this training. If the same training is started again, it continues from its checkpoint."
    )


def timed_out(minutes: float, tail: str) -> TrainingTimeoutError:
    """The error of a job that exceeded its time limit."""
    return TrainingTimeoutError(
        f"Training took longer than timeout_minutes={minutes:g} and was stopped. Raise it, or train for less.\n{tail}"
    )


def last_lines(lines: Sequence[str], where: str) -> str:
    """The end of a worker's log for an error message."""
    return f"The last lines of {where}:\n" + "\n".join(lines[-TAIL_LINES:])


def stacks_of(directory: Path) -> str:
    """The stacks that the wrapper took of the ranks of this machine, for an error message; empty if it took none."""
    stacks = {path.stem.removeprefix("stacks-"): path.read_text() for path in sorted(directory.glob("stacks-*.txt"))}
    shown = [f"Stacks of rank {rank}:\n" + "\n".join(text.splitlines()[:STACK_LINES]) for rank, text in stacks.items()]
    return "\n".join(shown)


def note_attempt(directory: Path, event: str, *, start: bool = False) -> None:
    """Append to the job's directory that workers start, or how they ended; a full disk loses the note, not the job."""
    line = {"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "event": event} | ({"start": True} if start else {})
    with suppress(OSError), open(directory / ATTEMPTS, "a") as file:
        file.write(json.dumps(line) + "\n")


def noted_attempts(directory: Path) -> list[dict[str, Any]]:
    """What `note_attempt` appended, without the line of a process that was killed while it wrote."""
    attempts: list[dict[str, Any]] = []
    with suppress(FileNotFoundError):
        for line in (directory / ATTEMPTS).read_text().splitlines():
            with suppress(ValueError):
                attempts.append(json.loads(line))
    return attempts


def restarts_in(attempts: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attempts of all nodes in order, for the report of a run; nothing if no worker and no pod started again."""
    ordered = sorted(({"node": ""} | line for line in attempts), key=lambda line: str(line["at"]))
    firsts = {line["node"]: line for line in reversed(ordered) if line.get("start")}
    return ordered if len(ordered) > len(firsts) else []


class Stop:
    """A request to stop training at once and keep its checkpoint; it may be made at any time, from any thread."""

    def __init__(self) -> None:
        self._requested = False
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []

    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._requested

    def ask(self) -> None:
        """Stop what runs in the context of this request, once; nothing new starts in it afterwards."""
        with self._lock:
            ends = [] if self._requested else list(self._ends)  # A second signal would end a job without a checkpoint.
            self._requested = True
        for end in ends:
            end()

    @contextmanager
    def ending(self, end: Callable[[], None]) -> Iterator[None]:
        """In this context `end` is called at a stop request, or now after one; possibly after the context has ended."""
        with self._lock:
            self._ends.append(end)
            requested = self._requested
        if requested:
            end()
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


STOP: ContextVar[Stop] = ContextVar("gatehouse_stop")
"""The stop request for the trainings of this context; see `stop_here`."""


def stop_here() -> Stop:
    """The stop request of this context; outside of a context, one that is never made."""
    return STOP.get(Stop())


HANG_SECONDS = 900.0
SCHEDULING_MINUTES, QUEUE_MINUTES = 30.0, 1440.0
MARGIN_MINUTES = 15.0
HANG = "GATEHOUSE_HANG_SECONDS"  # environment variable of the ranks: for how many seconds a rank may make no progress
_STACKS_SECONDS = 60.0


def collective_seconds() -> float:
    """How many seconds a rank waits for the others in a collective: longer than it takes to detect a hang."""
    return float(os.environ.get(HANG, HANG_SECONDS)) + _STACKS_SECONDS


def job_minutes(scheduling: float, training: float) -> float:
    """After how many minutes an operator ends a job if the launcher did not."""
    return scheduling + training + MARGIN_MINUTES


def stage_minutes(scheduling: float, training: float) -> int:
    """After how many minutes KFP ends a task that launches one job: later than any launcher or operator."""
    return round(job_minutes(scheduling, training) + MARGIN_MINUTES)


logger = logging.getLogger(__name__)

_LOOK_SECONDS = 0.1


@contextmanager
def job_directory(store: "ArtifactStore", name: str, arrays: Iterable[str] = ()) -> Iterator[Path]:
    """The directory of one job in the store's scratch space, for one process at a time; removed at the end.

    Another process that trains the same job waits. A process that is killed releases the directory as it stands. After
    an error it is kept without the folders `arrays` of the data, which the next attempt writes anew.
    """
    while True:
        try:
            directory = store.scratch(name)
            descriptor = os.open(directory, os.O_RDONLY)
        except (FileExistsError, FileNotFoundError):
            continue  # The process that had it removed it at the same moment.
        try:
            waiting = False
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if not waiting:
                        logger.info("Another process trains the same model: waiting for it to end.")
                    waiting = True
                    if stop_here().requested():
                        raise stopped() from None
                    time.sleep(_LOOK_SECONDS)
            try:
                removed = not os.path.samestat(os.fstat(descriptor), os.stat(directory))
            except FileNotFoundError:
                removed = True
            if removed:
                continue  # The process that had it has finished and removed it.
            try:
                yield directory
            except BaseException:  # A stopped run too: the arrays go, checkpoints stay, and the error is raised.
                for part in arrays:
                    shutil.rmtree(directory / part, ignore_errors=True)
                raise
            shutil.rmtree(directory)
            return
        finally:
            os.close(descriptor)
