"""Watches one job of a cluster to its end: its deadlines, its failures, and why it failed."""

import json
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes import pods as pod_status
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.kubernetes.operators import Operator
from gatehouse.launchers.kubernetes.owned import PROGRESS, OwnedJob, job_end
from gatehouse.launchers.kubernetes.pods import Attempts, Pod, PodLogs
from gatehouse.launchers.launcher import (
    EVICTED,
    PREEMPTED_CODE,
    ClusterError,
    EvictedError,
    ImagePullError,
    SchedulingTimeoutError,
    TrainingCancelledError,
    TrainingFailedError,
    UnschedulableError,
    timed_out,
)
from gatehouse.launchers.spec import ClusterLaunch, PyTorchJobLaunch, TrainJobLaunch

_EVENTS = 3


class JobWatch:
    """Looks at a job and its pods whenever a pod changes, and at regular intervals.

    A thread watches the pods, so that pods that start and end between two looks also count:
    docs/decisions/kubernetes-watch.md.
    """

    def __init__(
        self,
        api: KubernetesApi,
        operator: Operator,
        owned: OwnedJob,
        launch: PyTorchJobLaunch | TrainJobLaunch,
        minutes: float,
        logs: PodLogs,
        reported: Callable[[], dict[str, Any]],
        on_look: Callable[[], None],
    ) -> None:
        """Prepare to watch a job."""
        self._api, self._operator, self._owned, self._logs, self._reported = api, operator, owned, logs, reported
        self._on_look = on_look
        self._core = f"/api/v1/namespaces/{owned.namespace}"
        self._selector = f"{operator.label}={owned.name}"
        self.attempts = Attempts(launch.needed_nodes, launch.restarts)
        self._elastic = launch.min_nodes > 0
        self._deadlines = Deadlines(launch, minutes, logs.tail, self.events)
        self._progress = self._current_progress()

    def resume(self, job: dict[str, Any]) -> None:
        """Continue from the state that the earlier launcher wrote on the job's object."""
        progress = json.loads(job["metadata"]["annotations"].get(PROGRESS, "{}"))
        self.attempts.resume(progress)
        self._deadlines.resume(progress, job["metadata"]["creationTimestamp"])

    def until_success(self) -> None:
        """Return when the job has succeeded; every other end is a `LauncherError` with its cause."""
        ended, changed = threading.Event(), threading.Event()

        def follow() -> None:
            for pod in self._api.changes(f"{self._core}/pods", self._selector, ended):
                if ended.is_set():
                    return
                if self.attempts.observe(pod):
                    self._logs.follow([pod])
                changed.set()

        threading.Thread(target=follow, name=f"pods-{self._owned.name}", daemon=True).start()
        try:
            while (left := self._look()) is not None:
                changed.wait(max(0.001, min(self._api.timeouts.resync, left)))
                ended.wait(self._api.timeouts.min_interval)
                changed.clear()
        except (ClusterError, TrainingCancelledError) as error:
            first = self.attempts.first()
            raise type(error)(f"{error}\n{self._logs.tail(first, ask=False)}" if first else str(error)) from error
        finally:
            ended.set()

    def _look(self) -> float | None:
        """Seconds until the next deadline, or None if the job has succeeded."""
        job = self._owned.current()
        pods = self.pods()
        self._logs.follow(pods)
        if job["spec"].get("runPolicy", {}).get("suspend"):  # Kueue preempts like this.
            self.attempts.suspend()
        self._on_look()
        if end := job_end(job, self._operator.success):
            if end.succeeded:
                return None
            late = end.reason == "DeadlineExceeded" or "active longer than specified deadline" in end.message
            raise self._failure(f"The operator says: {end.reason}: {end.message}", late=late)
        # Nodes that never came back would keep the operator waiting.
        ended = self._elastic and all(pod.get("status", {}).get("phase") != "Running" for pod in pods)
        if ended and self._reported().get("outcome") == "succeeded":
            return None
        if exceeding := self.attempts.exceeding():
            raise self._failure(exceeding)
        left = self._deadlines.check(pods)
        if (progress := self._current_progress()) != self._progress:
            self._owned.save_progress(progress)
            self._progress = progress
        return left

    def _current_progress(self) -> str:
        return json.dumps(self._deadlines.progress() | self.attempts.progress(), sort_keys=True)

    def pods(self) -> list[Pod]:
        """The present pods of the job, in order of their names."""
        pods = sorted(self._api.list(f"{self._core}/pods", labelSelector=self._selector), key=pod_status.name_of)
        self.attempts.update(pods)
        return pods

    def events(self) -> str:
        """The last warnings about the job itself, such as an exceeded quota; empty if there are none."""
        with suppress(LauncherError, ApiConflict):
            events = self._api.list(f"{self._core}/events", fieldSelector=f"involvedObject.name={self._owned.name}")
            warnings = [event for event in events if event.get("type") == "Warning"]
            messages = [f"{event.get('reason')}: {event.get('message')}" for event in warnings[-_EVENTS:]]
            return f"The cluster says: {' '.join(messages)} " if messages else ""
        return ""

    def tail(self) -> str:
        """The last log lines of the pod that failed first, or of any pod if none failed."""
        first = self.attempts.first()
        return self._logs.tail(first) if first else "The job had no pod."

    def _failure(self, message: str, *, late: bool = False) -> LauncherError:
        """The error that explains the state of the last attempt's pods."""
        message = f"{message}\n{self.tail()}"
        reported = self._reported()
        program_error = TrainingFailedError(
            f"Training failed: {reported.get('message')}\n{message}", repeats=bool(reported.get("repeats"))
        )
        if reported.get("outcome") == "failed":
            return program_error
        if late:
            return timed_out(self._deadlines.minutes, message)
        failed = self.attempts.failed()
        evictions = [why for pod in failed if (why := pod_status.eviction(pod))]
        if not evictions and failed and pod_status.exit_code(failed[0]) == PREEMPTED_CODE:
            evictions = [f"Pod {pod_status.name_of(failed[0])} received a SIGTERM."]
        if evictions:
            return EvictedError(
                f"{EVICTED}\nThe cluster says: {evictions[0]}\nAsk for what the training needs (launch.resources), "
                "give it another priority, or more restarts (launch.run_policy.backoff_limit). Run again to resume at "
                f"its last checkpoint.\n{message}"
            )
        if reported.get("outcome") == "hung":
            return program_error
        cause = pod_status.how_it_ended(failed[0]) if failed else f"no pod says why. {self.events()}".strip()
        return TrainingFailedError(f"Training failed: {cause}\n{message}")


@dataclass
class Deadlines:
    """The deadlines of one job: how long it may wait for its pods, and how long it may run.

    The waiting time starts again whenever running pods are gone. The running time is the sum of all periods in which
    the job ran. `waiting_since` and `running_since` are by the monotonic clock of this process; one of them is None.
    """

    launch: ClusterLaunch
    minutes: float  # how long it may run
    tail: Callable[[Pod], str]
    events: Callable[[], str]
    waiting_since: float | None = field(default_factory=lambda: time.monotonic())
    running_since: float | None = None
    ran: float = 0.0  # seconds in earlier periods
    changed_at: str = ""  # when it started to run or to wait, as the cluster writes times; empty before it ran
    _pull_failed_since: float | None = None

    def progress(self) -> dict[str, Any]:
        """The state that a later launcher needs; it changes only when the job starts or stops running."""
        return {"ran": round(self.ran), "since": self.changed_at, "runs": self.running_since is not None}

    def resume(self, progress: Mapping[str, Any], created: str) -> None:
        """Continue for a job that another launcher has watched.

        The state of the job when that launcher last looked counts as its state until now.
        """
        self.changed_at = progress.get("since") or created
        changed = datetime.fromisoformat(self.changed_at.replace("Z", "+00:00"))
        # By the clock of this machine, a time of the cluster may lie in the future.
        since = time.monotonic() - max(0.0, (datetime.now(UTC) - changed).total_seconds())
        self.ran = progress.get("ran", 0.0)
        self.waiting_since, self.running_since = (None, since) if progress.get("runs") else (since, None)

    def check(self, pods: list[Pod]) -> float:
        """Seconds until the next deadline, for the job's present pods; a deadline that has passed is an error."""
        now = time.monotonic()
        pull_message, hopeless = pod_status.image_problem(pods)
        if not pull_message:
            self._pull_failed_since = None
        else:
            self._pull_failed_since = self._pull_failed_since or now
            if hopeless or now - self._pull_failed_since >= self.launch.image_pull_minutes * 60:
                raise ImagePullError(
                    f"The image of the training job cannot be pulled.\nThe node says: {pull_message}\nCheck "
                    "launch.image, and launch.pull_secrets where the registry is private."
                )
        running = sum(map(pod_status.runs, pods))
        if running >= self.launch.needed_nodes:
            self.waiting_since = None
            if self.running_since is None:
                self.running_since, self.changed_at = now, _now()
        elif self.waiting_since is None:
            self.ran += 0.0 if self.running_since is None else now - self.running_since
            self.waiting_since, self.running_since, self.changed_at = now, None, _now()
        ran = self.ran + (0.0 if self.running_since is None else now - self.running_since)
        if (left := self.minutes * 60 - ran) <= 0:
            raise timed_out(self.minutes, self.tail(pods[0]) if pods else "")
        if self.waiting_since is None:
            return left
        if (left := self.waiting_since + self.launch.scheduling_minutes * 60 - now) > 0:
            return left
        allowed = f"launch.scheduling_minutes={self.launch.scheduling_minutes:g}"
        if message := pod_status.unschedulable(pods):
            raise UnschedulableError(
                f"Training could not be scheduled within {allowed}: no node takes its pods.\nThe scheduler says: "
                f"{message}\nAsk for less (launch.resources), tolerate more nodes, or wait longer."
            )
        raise SchedulingTimeoutError(
            f"Training did not start within {allowed}.\n{running} of {self.launch.needed_nodes} pods run. "
            f"{self.events()}Look at the queue and the quota of the namespace, or wait longer."
        )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
