"""What a launcher is: it runs one training job somewhere, and returns only if the job succeeded and left its model."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gatehouse.errors import LauncherError, StoppedError

JOB = "job.json"
"""File of a job's directory that the program reads: what to train."""
RESULT, WEIGHTS = "result.json", "weights"
"""Files that the program leaves where it succeeds; the result names the SHA-256 of the weights."""
FAILURE = "failure.json"
"""File that the program leaves where it fails in a way that another attempt would only repeat."""
METRICS, LOG, PLACE = "metrics", "worker.log", "place.json"
"""Files that say how the job went: the spool of its metrics, its log, and where it ran."""
CHECKPOINTS = "checkpoints"
"""Folder of a job's directory from which it goes on."""
CHECKPOINT_STORE, CHECKPOINT_NAME = "GATEHOUSE_CHECKPOINT_STORE", "GATEHOUSE_CHECKPOINT_NAME"
"""Variables of the environment: the artifact store that gets a copy of every checkpoint, and the run's name there."""
TAIL_LINES = 20
"""Lines of a log that an error shows."""
HUNG_CODE, RETRY_CODE, PREEMPTED_CODE = 124, 128, 143
"""Exit codes of the wrapper: a rank hung; the least code after which the job may be started again, because what ended
it may pass; it was preempted, and goes on at its last checkpoint."""
EVICTED = "Training failed: it was preempted or evicted more often than it may start again."
HUNG = "a rank made no progress for launch.hang_seconds; the log has the stacks of all ranks."


class TrainingFailedError(LauncherError):
    """The job ended without a model."""


class TrainingTimeoutError(LauncherError):
    """The job ran longer than it may, and was stopped."""


class SchedulingTimeoutError(LauncherError):
    """The job waited longer than it may for its pods to run, and was withdrawn."""


class UnschedulableError(LauncherError):
    """The scheduler found no node for a pod of the job, until the job was withdrawn."""


class ImagePullError(LauncherError):
    """The image of the job cannot be pulled."""


class EvictedError(LauncherError):
    """The job was preempted, evicted or lost its node, more often than it may start again."""


class TrainingCancelledError(LauncherError):
    """Somebody deleted the job while it ran."""


class TrainingStoppedError(LauncherError, StoppedError):
    """Whoever began the training wants no more of it; a checkpoint keeps what was trained."""


class ClusterError(LauncherError):
    """The cluster refuses a request, or does not answer."""


@dataclass(frozen=True)
class TrainingJob:
    """One run of a training program.

    Attributes:
        directory: Holds `job.json` and the data, and takes checkpoints, weights and the result.
        program: Dotted name of the module that every worker runs, with the directory as its argument.
        processes: Number of workers, on all machines together.
        timeout_minutes: After so many minutes the job is stopped; time in which it waits for machines is not counted.
        model_size: Number of workers that share one copy of the model; `processes` is a multiple of it.
        builder: `package.module:builder` of a user's own model, whose code the workers need too; empty for none.
    """

    directory: Path
    program: str
    processes: int
    timeout_minutes: float
    model_size: int = 1
    builder: str = ""


class Launcher(Protocol):
    """Runs training jobs somewhere.

    Attributes:
        remote: Whether jobs run on other machines than this one.
    """

    remote: bool

    def run(self, job: TrainingJob) -> None:
        """Run `job`, from its last checkpoint where there is one, and return when its result and weights are there.

        Whatever ends this call, also a SIGTERM, no process of the job is left running. The first line of an error's
        message is the same for the same cause. What the cluster said, and the last lines of the worker that failed,
        follow it.

        Raises:
            TrainingStoppedError: if it was stopped (`stopping.py`) before its result was there.
            TrainingFailedError: if the job did not succeed, or without the weights that its result names.
            TrainingTimeoutError: if it was stopped because it ran too long.
            LauncherError: if it could not run; there is a class for each cause.
        """

    def forget(self, job: TrainingJob) -> None:
        """Drop what is kept of a job that has succeeded. Call it when its model is published.

        Until then a launcher that starts again returns the kept result, and trains nothing.
        """


def result_problem(directory: Path) -> str:
    """What is wrong with the result of a job that reports success; empty where its weights are those that it names."""
    try:
        result = json.loads((directory / RESULT).read_text())
        digest = hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        return f"the job reports success, but there is no result and weights ({type(error).__name__})."
    if digest != result.get("weights_sha256"):
        return f"the weights have SHA-256 {digest}, expected {result.get('weights_sha256')} as the result says."
    return ""


def stopped() -> TrainingStoppedError:
    """The error of a job that its experiment stopped."""
    return TrainingStoppedError("Training was stopped by its experiment. The same training goes on at its checkpoint.")


def timed_out(minutes: float, tail: str) -> TrainingTimeoutError:
    """The error of a job that ran too long."""
    return TrainingTimeoutError(
        f"Training took longer than training.operation.timeout_minutes={minutes:g} and was stopped. "
        f"Give it more time or less work.\n{tail}"
    )


def last_lines(lines: Sequence[str], where: str) -> str:
    """The end of a worker's log, as errors show it."""
    return f"The last lines of {where}:\n" + "\n".join(lines[-TAIL_LINES:])
