"""The deadlines of a job on a cluster: how long it may wait for its pods, and how long it may run."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gatehouse.launchers.kubernetes import pod_status
from gatehouse.launchers.kubernetes.pod_status import Pod
from gatehouse.launchers.launcher import ImagePullError, SchedulingTimeoutError, UnschedulableError, timed_out
from gatehouse.launchers.spec import ClusterLaunch


@dataclass
class Deadlines:
    """The deadlines of one job.

    The waiting time starts again whenever running pods are gone. The running time is the sum of all periods in which
    the job ran.

    Attributes:
        launch: How long the job may wait.
        min_pods: Pods that must run for the job to run.
        minutes: How long it may run.
        tail: Gives the last log lines of a pod.
        events: Gives the cluster's events about the job.
        waiting_since: When the job began to wait, by the monotonic clock of this process; None while it runs.
        running_since: When the job began to run, by the same clock; None while it waits.
        ran: Seconds that it ran in earlier periods.
        changed_at: When it started to run or to wait, as the cluster writes times (RFC 3339); empty before it ran.
    """

    launch: ClusterLaunch
    min_pods: int
    minutes: float
    tail: Callable[[Pod], str]
    events: Callable[[], str]
    waiting_since: float | None = field(default_factory=lambda: time.monotonic())
    running_since: float | None = None
    ran: float = 0.0
    changed_at: str = ""
    _pull_failed_since: float | None = None

    def progress(self) -> dict[str, Any]:
        """What a later launcher of the job needs; it changes only when the job starts or stops running."""
        return {"ran": round(self.ran), "since": self.changed_at, "runs": self.running_since is not None}

    def resume(self, job: Mapping[str, Any], pods: list[Pod], progress: Mapping[str, Any]) -> None:
        """Continue for a job that another launcher has watched.

        Args:
            job: The job's object.
            pods: Its pods as they are now.
            progress: The last record of the launcher before.
        """
        now = time.monotonic()
        self.ran = progress.get("ran", 0.0)
        unchanged = _age(progress.get("since") or job["metadata"]["creationTimestamp"])
        if self._runs(pods):
            began = _age(at) if (at := pod_status.started_at(pods)) else 0.0
            began = max(unchanged, began) if progress.get("runs") else began
            self.waiting_since, self.running_since, self.changed_at = None, now - began, _ago(began)
        elif progress.get("runs"):
            # It stopped running while no launcher watched. If the time is not known, waiting starts now.
            waited = min((each for each in _waits(job, pods) if each < unchanged), default=0.0)
            self.ran, self.waiting_since, self.changed_at = self.ran + unchanged - waited, now - waited, _ago(waited)
        else:
            waited = min([unchanged, *_waits(job, pods)])
            self.waiting_since, self.changed_at = now - waited, _ago(waited)

    def check(self, pods: list[Pod]) -> float:
        """Seconds until the next deadline.

        Args:
            pods: The job's pods as they are now.

        Raises:
            ImagePullError: if an image could not be pulled in time.
            UnschedulableError: if no node took a pod in time.
            SchedulingTimeoutError: if the pods did not run in time for another reason.
            TrainingTimeoutError: if the job has run for too long.
        """
        now = time.monotonic()
        self._check_images(pods, now)
        if self._runs(pods):
            self.waiting_since = None
            if self.running_since is None:
                self.running_since, self.changed_at = now, _ago(0)
        elif self.waiting_since is None:
            self.ran += 0.0 if self.running_since is None else now - self.running_since
            self.waiting_since, self.running_since, self.changed_at = now, None, _ago(0)
        return min(self._left_to_run(now, pods), self._left_to_wait(now, pods))

    def _runs(self, pods: list[Pod]) -> bool:
        return sum(map(pod_status.runs, pods)) >= self.min_pods

    def _left_to_run(self, now: float, pods: list[Pod]) -> float:
        ran = self.ran + (0.0 if self.running_since is None else now - self.running_since)
        if (left := self.minutes * 60 - ran) <= 0:
            raise timed_out(self.minutes, self.tail(pods[0]) if pods else "")
        return float("inf") if self.running_since is None else left

    def _left_to_wait(self, now: float, pods: list[Pod]) -> float:
        if self.waiting_since is None:
            return float("inf")
        left = self.waiting_since + self.launch.scheduling_minutes * 60 - now
        if left > 0:
            return left
        allowed = f"launch.scheduling_minutes={self.launch.scheduling_minutes:g}"
        if said := pod_status.unschedulable(pods):
            raise UnschedulableError(
                f"Training could not be scheduled within {allowed}: no node takes its pods.\nThe scheduler says: "
                f"{said}\nAsk for less (launch.resources), tolerate more nodes, or wait longer."
            )
        raise SchedulingTimeoutError(
            f"Training did not start within {allowed}.\n{sum(map(pod_status.runs, pods))} of {self.min_pods} pods run. "
            f"{self.events()}Look at the queue and the quota of the namespace, or wait longer."
        )

    def _check_images(self, pods: list[Pod], now: float) -> None:
        said, hopeless = pod_status.image_problem(pods)
        if not said:
            self._pull_failed_since = None
            return
        self._pull_failed_since = now if self._pull_failed_since is None else self._pull_failed_since
        if hopeless or now - self._pull_failed_since >= self.launch.image_pull_minutes * 60:
            raise ImagePullError(
                f"The image of the training job cannot be pulled.\nThe node says: {said}\nCheck launch.image, and "
                "launch.pull_secrets where the registry is private."
            )


def _waits(job: Mapping[str, Any], pods: list[Pod]) -> list[float]:
    """Seconds since each time at which a job may have begun to wait.

    These are the times at which pods that do not run yet were created, as a pod that was evicted is created again;
    without such pods, the times at which the job's conditions changed.
    """
    waiting = [pod["metadata"].get("creationTimestamp", "") for pod in pods if not pod_status.runs(pod)]
    changed = [each.get("lastTransitionTime", "") for each in job.get("status", {}).get("conditions") or []]
    return [_age(at) for at in (waiting or changed) if at]


def _ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _age(at: str) -> float:
    """Seconds since a time of the cluster; 0 for a time that is in the future by the clock of this machine."""
    then = datetime.fromisoformat(at.replace("Z", "+00:00"))
    return max(0.0, (datetime.now(UTC) - then).total_seconds())
