"""Watches the clock of a job on a cluster: how long it may wait for its pods, and how long it may run."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gatehouse.components.training.launcher import ImagePullError, SchedulingTimeoutError, UnschedulableError, timed_out
from gatehouse.components.training.launchers import pods as state
from gatehouse.components.training.launchers.pods import Pod
from gatehouse.components.training.launchers.spec import ClusterLaunch


@dataclass
class Deadlines:
    """The deadlines of one job. Waiting counts anew when pods that ran are gone; running counts from the first time.

    Attributes:
        launch: How long the job may wait.
        fewest: Pods that must run for the job to run.
        minutes: How long it may run.
        tail: The last log lines of a pod.
        events: What the cluster says about the job beside its pods.
        waiting: Since when it waits, on this process's clock; None while it runs.
        running: Since when it runs; None before it did.
    """

    launch: ClusterLaunch
    fewest: int
    minutes: float
    tail: Callable[[Pod], str]
    events: Callable[[], str]
    waiting: float | None = field(default_factory=time.monotonic)
    running: float | None = None
    _pull_failed: float | None = None

    def resume(self, created: str, pods: list[Pod]) -> None:
        """Count from when a job that was found again began to wait, or to run."""
        now = time.monotonic()
        # A pod that was evicted waits anew in a job that may be hours old.
        waiting = [pod["metadata"].get("creationTimestamp", created) for pod in pods if not state.runs(pod)]
        self.waiting = now - _age(max(waiting, default=created))
        if sum(map(state.runs, pods)) >= self.fewest and (started := state.started_at(pods)):
            self.running = now - _age(started)

    def check(self, pods: list[Pod]) -> float:
        """Seconds until the next deadline.

        Raises:
            ImagePullError, UnschedulableError, SchedulingTimeoutError, TrainingTimeoutError: after one.
        """
        now = time.monotonic()
        self._check_images(pods, now)
        if sum(map(state.runs, pods)) >= self.fewest:
            self.waiting = None
            self.running = now if self.running is None else self.running
        elif self.waiting is None:
            self.waiting = now
        left = [self._left_to_run(now, pods), self._left_to_wait(now, pods)]
        return min(left)

    def _left_to_run(self, now: float, pods: list[Pod]) -> float:
        if self.running is None:
            return float("inf")
        left = self.running + self.minutes * 60 - now
        if left <= 0:
            raise timed_out(self.minutes, self.tail(pods[0]) if pods else "")
        return left

    def _left_to_wait(self, now: float, pods: list[Pod]) -> float:
        if self.waiting is None:
            return float("inf")
        left = self.waiting + self.launch.scheduling_minutes * 60 - now
        if left > 0:
            return left
        allowed = f"launch.scheduling_minutes={self.launch.scheduling_minutes:g}"
        if said := state.unschedulable(pods):
            raise UnschedulableError(
                f"Training could not be scheduled within {allowed}: no node takes its pods.\nThe scheduler says: "
                f"{said}\nAsk for less (launch.resources), tolerate more nodes, or wait longer."
            )
        raise SchedulingTimeoutError(
            f"Training did not start within {allowed}.\n{sum(map(state.runs, pods))} of {self.fewest} pods run. "
            f"{self.events()}Look at the queue and the quota of the namespace, or wait longer."
        )

    def _check_images(self, pods: list[Pod], now: float) -> None:
        said, hopeless = state.image_problem(pods)
        if not said:
            self._pull_failed = None
            return
        self._pull_failed = now if self._pull_failed is None else self._pull_failed
        if hopeless or now - self._pull_failed >= self.launch.image_pull_minutes * 60:
            raise ImagePullError(
                f"The image of the training job cannot be pulled.\nThe node says: {said}\nCheck launch.image, and "
                "launch.pull_secrets where the registry is private."
            )


def _age(at: str) -> float:
    """Seconds since a time of the cluster; none where the clocks disagree."""
    then = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return max(0.0, (datetime.now(UTC) - then).total_seconds())
