"""Watches one job of a cluster to its end, and says why it failed."""

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes import pod_status
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.kubernetes.attempts import Attempts
from gatehouse.launchers.kubernetes.deadlines import Deadlines
from gatehouse.launchers.kubernetes.logs import PodLogs
from gatehouse.launchers.kubernetes.operator import PROGRESS, JobEnd, Operator
from gatehouse.launchers.kubernetes.ownership import OwnedJob
from gatehouse.launchers.kubernetes.pod_status import Pod
from gatehouse.launchers.launcher import (
    EVICTED,
    ClusterError,
    EvictedError,
    TrainingCancelledError,
    TrainingFailedError,
    timed_out,
)
from gatehouse.launchers.spec import PyTorchJobLaunch, TrainJobLaunch

_EVENTS = 3


class JobWatch:
    """Checks a job and its pods whenever the job changes, and at regular intervals.

    Pods that come and go between two looks are watched in a thread: docs/decisions/kubernetes-watch.md.
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
        """Prepare to watch a job.

        Args:
            api: The cluster.
            operator: The operator of its kind.
            owned: The job.
            launch: Settings for waiting times and restarts.
            minutes: How long it may run.
            logs: Streams the logs of the pods.
            reported: Gives the last report of a pod about the end of the job; empty if there is none.
            on_look: Called at every check.
        """
        self._api, self._operator, self._owned, self._logs, self._reported = api, operator, owned, logs, reported
        self._on_look = on_look
        self._core = f"/api/v1/namespaces/{owned.namespace}"
        labels = operator.pod_labels(owned.name)
        self._selector = ",".join(f"{name}={value}" for name, value in labels.items())
        self._attempts = Attempts(launch.min_pods, launch.restarts)
        self._deadlines = Deadlines(launch, launch.min_pods, minutes, logs.tail, self.events)
        self._progress, self._version = self._progress_now(), ""

    def resume(self, found: dict[str, Any]) -> None:
        """Continue from the state that the earlier launcher wrote on the job's object."""
        progress = json.loads(found["metadata"]["annotations"].get(PROGRESS, "{}"))
        self._attempts.resume(progress)
        self._deadlines.resume(found, self.pods(), progress)

    def until_success(self) -> None:
        """Return when the job has succeeded.

        Raises:
            LauncherError: if the job did not succeed, was deleted, or exceeded a deadline.
        """
        ended = threading.Event()
        threading.Thread(target=self._follow, args=(ended,), name=f"pods-{self._owned.name}", daemon=True).start()
        try:
            while (left := self._look()) is not None:
                pause = max(0.001, min(self._api.timeouts.resync, left))
                self._api.wait_for_change(self._owned.path, self._owned.name, self._version, pause)
        except (ClusterError, TrainingCancelledError) as error:
            first = self._attempts.first()
            raise type(error)(f"{error}\n{self._logs.tail(first, ask=False)}" if first else str(error)) from error
        finally:
            ended.set()

    def _follow(self, ended: threading.Event) -> None:
        """Record each pod at each change, and read its log from its start."""
        for pod in self._api.changes(f"{self._core}/pods", self._selector, ended):
            if ended.is_set():
                return
            if self._attempts.observe(pod):
                self._logs.follow([pod])

    def _look(self) -> float | None:
        """Seconds until the next deadline, or None if the job has succeeded."""
        found = self._owned.current()
        self._version = found["metadata"]["resourceVersion"]
        pods = self.pods()
        self._logs.follow(pods)
        if found["spec"].get("runPolicy", {}).get("suspend"):  # Kueue preempts so.
            self._attempts.suspend()
        self._on_look()
        if end := self._operator.end(found):
            if end.succeeded:
                return None
            raise self._failure(end)
        if said := self._attempts.exceeding():
            raise self._cause(said)
        left = self._deadlines.check(pods)
        if (progress := self._progress_now()) != self._progress:
            self._owned.save_progress(progress)
            self._progress = progress
        return left

    def _progress_now(self) -> str:
        return json.dumps(self._deadlines.progress() | self._attempts.progress(), sort_keys=True)

    def pods(self) -> list[Pod]:
        """The present pods of the job, in order of their names."""
        found = sorted(self._api.list(f"{self._core}/pods", labelSelector=self._selector), key=pod_status.name_of)
        self._attempts.update(found)
        return found

    def events(self) -> str:
        """The last warnings about the job itself, such as an exceeded quota; empty if there are none."""
        with suppress(LauncherError, ApiConflict):
            found = self._api.list(f"{self._core}/events", fieldSelector=f"involvedObject.name={self._owned.name}")
            warnings = [each for each in found if each.get("type") == "Warning"]
            said = [f"{each.get('reason')}: {each.get('message')}" for each in warnings[-_EVENTS:]]
            return f"The cluster says: {' '.join(said)} " if said else ""
        return ""

    def tail(self) -> str:
        """The last log lines of the pod that failed first, or of any pod if none failed."""
        first = self._attempts.first()
        return self._logs.tail(first) if first else "The job had no pod."

    def _failure(self, end: JobEnd) -> LauncherError:
        """The error of a job that its operator reports as failed."""
        late = end.reason == "DeadlineExceeded" or "active longer than specified deadline" in end.message
        return self._cause(f"The operator says: {end.reason}: {end.message}", late=late)

    def _cause(self, said: str, *, late: bool = False) -> LauncherError:
        """The error that explains the state of the last attempt's pods.

        Args:
            said: The operator's or the launcher's message about the end.
            late: Whether the operator ended the job at its deadline.
        """
        said = f"{said}\n{self.tail()}"
        reported = self._reported()
        if reported.get("outcome") == "failed":
            repeats = bool(reported.get("repeats"))
            return TrainingFailedError(f"Training failed: {reported['message']}\n{said}", repeats=repeats)
        if late:
            return timed_out(self._deadlines.minutes, said)
        failed = self._attempts.failed()
        evictions = [why for pod in failed if (why := pod_status.eviction(pod))]
        if failed and (why := evictions[0] if evictions else pod_status.preemption(failed)):
            return EvictedError(
                f"{EVICTED}\n"
                f"The cluster says: {why}\nAsk for what the training needs (launch.resources), give it another "
                f"priority, or more restarts (launch.run_policy.backoff_limit). Run again: it goes on at its last "
                f"checkpoint.\n{said}"
            )
        cause = pod_status.how_it_ended(failed[0]) if failed else f"no pod says why. {self.events()}".strip()
        return TrainingFailedError(f"Training failed: {cause}\n{said}")
