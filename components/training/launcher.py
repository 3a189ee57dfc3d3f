"""What a launcher is: it runs one training job somewhere, and ends well only if the job did."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from gatehouse.errors import LauncherError

JOB, RESULT, FAILURE, WEIGHTS, METRICS = "job.json", "result.json", "failure.json", "weights.safetensors", "metrics"


class TrainingFailedError(LauncherError):
    """The job ended without a model."""


class TrainingTimeoutError(LauncherError):
    """The job took longer than it may, and was stopped."""


@dataclass(frozen=True)
class TrainingJob:
    """One run of the training program.

    Attributes:
        directory: Holds `job.json` and the data, and takes checkpoints, weights and the result.
        processes: Workers.
        timeout_minutes: After which the job is stopped.
    """

    directory: Path
    processes: int
    timeout_minutes: float


class Launcher(Protocol):
    """Runs training jobs somewhere."""

    def run(self, job: TrainingJob) -> None:
        """Run `job`, from its last checkpoint where there is one, and return when its result and weights are there.

        The first line of every error's message is the same for the same cause; the worker's last lines follow.

        Raises:
            TrainingFailedError: if it ended in anything but success.
            TrainingTimeoutError: if it was stopped for taking too long.
        """
