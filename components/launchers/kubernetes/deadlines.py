"""Watches the clock of a job on a cluster: how long it may wait for its pods, and how long it may run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.components.launchers.kubernetes import pod_status as state
from gatehouse.components.launchers.kubernetes.pod_status import Pod
from gatehouse.components.launchers.launcher import (
    ImagePullError,
    SchedulingTimeoutError,
    UnschedulableError,
    timed_out,
)
from gatehouse.components.launchers.spec import ClusterLaunch


@dataclass
class Deadlines:
    """The deadlines of one job. Waiting counts anew when pods that ran are gone; running counts all times together.

    Attributes:
        launch: How long the job may wait.
        fewest: Pods that must run for the job to run.
        minutes: How long it may run.
        tail: The last log lines of a pod.
        events: What the cluster says about the job beside its pods.
        waiting: Since when it waits, on this process's clock; None while it runs.
        running: Since when it runs; None while it waits.
        ran: Seconds that it had run before that.
        since: When it began to run or to wait, by the clock of all (RFC 3339); empty before it ran.
    """

    launch: ClusterLaunch
    fewest: int
    minutes: float
    tail: Callable[[Pod], str]
    events: Callable[[], str]
    waiting: float | None = field(default_factory=time.monotonic)
    running: float | None = None
    ran: float = 0.0
    since: str = ""
    _pull_failed: float | None = None

    def course(self) -> dict[str, Any]:
        """What the next launcher must know to count on: it changes only when the job begins or ceases to run."""
        return {"ran": round(self.ran), "since": self.since, "runs": self.running is not None}

    def resume(self, job: Mapping[str, Any], pods: list[Pod], course: Mapping[str, Any]) -> None:
        """Count from when a job that was found again began to wait, or to run; `course` as it was written last."""
        now = time.monotonic()
        self.ran = course.get("ran", 0.0)
        turned = _age(course.get("since") or job["metadata"]["creationTimestamp"])
        if sum(map(state.runs, pods)) >= self.fewest:
            began = _age(at) if (at := state.started_at(pods)) else 0.0
            began = max(turned, began) if course.get("runs") else began
            self.waiting, self.running, self.since = None, now - began, _ago(began)
        elif course.get("runs"):
            # It began to wait while no launcher looked. Where nothing tells when, it waits from now.
            waited = min((each for each in _waited(job, pods) if each < turned), default=0.0)
            self.ran, self.waiting, self.since = self.ran + turned - waited, now - waited, _ago(waited)
        else:
            waited = min([turned, *_waited(job, pods)])
            self.waiting, self.since = now - waited, _ago(waited)

    def check(self, pods: list[Pod]) -> float:
        """Seconds until the next deadline.

        Raises:
            ImagePullError, UnschedulableError, SchedulingTimeoutError, TrainingTimeoutError: after one.
        """
        now = time.monotonic()
        self._check_images(pods, now)
        if sum(map(state.runs, pods)) >= self.fewest:
            self.waiting = None
            if self.running is None:
                self.running, self.since = now, _ago(0)
        elif self.waiting is None:
            self.waiting, self.since = now, _ago(0)
            self.ran, self.running = self.ran + now - (now if self.running is None else self.running), None
        return min(self._left_to_run(now, pods), self._left_to_wait(now, pods))

    def _left_to_run(self, now: float, pods: list[Pod]) -> float:
        ran = self.ran + (0.0 if self.running is None else now - self.running)
        if (left := self.minutes * 60 - ran) <= 0:
            raise timed_out(self.minutes, self.tail(pods[0]) if pods else "")
        return float("inf") if self.running is None else left

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


def _waited(job: Mapping[str, Any], pods: list[Pod]) -> list[float]:
    """Seconds since each of the times at which a job may have begun to wait: a pod that was evicted is made anew."""
    waiting = [pod["metadata"].get("creationTimestamp", "") for pod in pods if not state.runs(pod)]
    turned = [each.get("lastTransitionTime", "") for each in job.get("status", {}).get("conditions") or []]
    return [_age(at) for at in (waiting or turned) if at]


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _age(at: str) -> float:
    """Seconds since a time of the cluster; none where the clocks disagree."""
    then = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return max(0.0, (datetime.now(UTC) - then).total_seconds())
