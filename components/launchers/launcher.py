"""What a launcher is: it runs one training job somewhere, and ends well only if the job did."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gatehouse.errors import LauncherError

JOB, RESULT, FAILURE, METRICS = "job.json", "result.json", "failure.json", "metrics"
LOG, PLACE = "worker.log", "place.json"
WEIGHTS = "weights"
"""In the format of the framework that trained them; the model's artifact names it (`Framework.weights`)."""
CHECKPOINT_STORE, CHECKPOINT_NAME = "GATEHOUSE_CHECKPOINT_STORE", "GATEHOUSE_CHECKPOINT_NAME"
"""Name in the environment the artifact store that gets a copy of every checkpoint, and what the run is called there."""
TAIL_LINES = 20
PREEMPTED_CODE, HUNG_CODE, RETRY_CODE = 143, 124, 128
"""Exit codes of the wrapper: it was preempted, and goes on at its last checkpoint if it is started again; it hung; the
least after which an operator starts a pod again: what ended it, as a store that is away, may pass."""
TAKEN_AWAY = "Training failed: it was preempted or evicted more often than it may start again."
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


class ClusterError(LauncherError):
    """The cluster refuses a request, or does not answer."""


@dataclass(frozen=True)
class TrainingJob:
    """One run of the training program.

    Attributes:
        directory: Holds `job.json` and the data, and takes checkpoints, weights and the result.
        program: Dotted name of the module that every worker runs, with the directory as its argument.
        processes: Workers over all machines.
        timeout_minutes: After which the job is stopped, counted from when it runs.
        model_size: Processes that share one copy of the model: their number is always a multiple of it.
        builder: `package.module:builder` of a model of one's own, whose code workers must hold too; empty for none.
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
        remote: Whether they run on other machines than this one.
    """

    remote: bool

    def run(self, job: TrainingJob) -> None:
        """Run `job`, from its last checkpoint where there is one, and return when its result and weights are there.

        However this ends, also by SIGTERM, nothing of the job runs on. The first line of every error's message is the
        same for the same cause; what the cluster said and the failing worker's last lines follow.

        Raises:
            TrainingFailedError: if it ended in anything but success, or without the weights that its result names.
            TrainingTimeoutError: if it was stopped for running too long.
            LauncherError: if it could not run; each cause is a class of its own.
        """

    def forget(self, job: TrainingJob) -> None:
        """Drop what was kept so that a job that ended well need not run again: its model is published now."""


def problem(directory: Path) -> str:
    """What is wrong with a job that ended in success; empty where it left the weights that its result names."""
    try:
        result = json.loads((directory / RESULT).read_text())
        digest = hashlib.sha256((directory / WEIGHTS).read_bytes()).hexdigest()
    except (OSError, ValueError) as error:
        return f"the job reports success, but there is no result and weights ({type(error).__name__})."
    if digest != result.get("weights_sha256"):
        return f"the weights have SHA-256 {digest}, expected {result.get('weights_sha256')} as the result says."
    return ""


def timed_out(minutes: float, tail: str) -> TrainingTimeoutError:
    """The error of a job that ran too long."""
    return TrainingTimeoutError(
        f"Training took longer than training.timeout_minutes={minutes:g} and was stopped. "
        f"Give it more time or less work.\n{tail}"
    )


def last_lines(lines: Sequence[str], where: str) -> str:
    """The end of a worker's log, as errors show it."""
    return f"The last lines of {where}:\n" + "\n".join(lines[-TAIL_LINES:])
