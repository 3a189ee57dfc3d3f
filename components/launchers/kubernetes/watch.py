"""Watches one job of a cluster to its end, and says why it failed."""

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatehouse.components.launchers.kubernetes import pod_status as state
from gatehouse.components.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.components.launchers.kubernetes.attempts import Lives
from gatehouse.components.launchers.kubernetes.deadlines import Deadlines
from gatehouse.components.launchers.kubernetes.logs import PodLogs
from gatehouse.components.launchers.kubernetes.operator import COURSE, Ended, Operator
from gatehouse.components.launchers.kubernetes.ownership import Claim
from gatehouse.components.launchers.kubernetes.pod_status import Pod
from gatehouse.components.launchers.launcher import (
    TAKEN_AWAY,
    ClusterError,
    EvictedError,
    TrainingCancelledError,
    TrainingFailedError,
    timed_out,
)
from gatehouse.components.launchers.spec import PyTorchJobLaunch, TrainJobLaunch
from gatehouse.errors import LauncherError

_EVENTS = 3


class Watch:
    """Looks at a job and its pods whenever the job changes, and once in a while besides."""

    def __init__(
        self,
        api: KubernetesApi,
        operator: Operator,
        claim: Claim,
        launch: PyTorchJobLaunch | TrainJobLaunch,
        minutes: float,
        logs: PodLogs,
        reported: Callable[[], dict[str, Any]],
        looked: Callable[[], None],
    ) -> None:
        """Prepare to watch the job of `claim`.

        Args:
            api: The cluster.
            operator: Of which kind the job is.
            claim: Which job.
            launch: How long it may wait, and how often start again.
            minutes: How long it may run.
            logs: Stream the pods' logs.
            reported: Reads what a pod said about the end of the job.
            looked: Called at every look.
        """
        self._api, self._operator, self._claim, self._logs, self._reported = api, operator, claim, logs, reported
        self._looked, self._restarts = looked, launch.restarts
        self._core = f"/api/v1/namespaces/{claim.namespace}"
        self._lives = Lives(launch.fewest)
        self._deadlines = Deadlines(launch, launch.fewest, minutes, logs.tail, self.events)
        self._course, self._version = self._course_now(), ""

    def resume(self, job: dict[str, Any]) -> None:
        """Go on where the launcher before was, as it wrote on the job."""
        course = json.loads(job["metadata"]["annotations"].get(COURSE, "{}"))
        self._deadlines.resume(job, self.pods(), course)
        self._lives.failures = Counter(course.get("failures", {}))

    def until_success(self) -> None:
        """Return when the job has succeeded.

        Raises:
            LauncherError: if it ended otherwise, was deleted, or met a deadline.
        """
        try:
            while (rest := self._look()) is not None:
                pause = max(0.001, min(self._api.pace.resync, rest))
                self._api.wait_for_change(self._claim.path, self._claim.name, self._version, pause)
        except (ClusterError, TrainingCancelledError) as error:
            first = self._lives.first()
            raise type(error)(f"{error}\n{self._logs.tail(first, ask=False)}" if first else str(error)) from error

    def _look(self) -> float | None:
        """Seconds until the next deadline, or None where the job has succeeded."""
        job = self._claim.current()
        self._version = job["metadata"]["resourceVersion"]
        pods = self.pods()
        self._logs.follow(pods)
        self._looked()
        if ended := self._operator.ended(job):
            if ended.succeeded:
                return None
            raise self._failure(ended)
        if self._restarts is not None and (said := self._lives.more_than(self._restarts)):
            raise self._cause(said)
        rest = self._deadlines.check(pods)
        if (course := self._course_now()) != self._course:
            self._claim.remember(course)
            self._course = course
        return rest

    def _course_now(self) -> str:
        failures = {} if self._restarts is None else self._lives.failures
        return json.dumps(self._deadlines.course() | {"failures": failures}, sort_keys=True)

    def pods(self) -> list[Pod]:
        """The pods of the job as they are now, in order of their names."""
        labels = self._operator.pods(self._claim.name)
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = sorted(self._api.list(f"{self._core}/pods", labelSelector=selector), key=state.name_of)
        self._lives.see(found)
        return found

    def events(self) -> str:
        """The last warnings about the job itself, such as a quota that is exceeded; empty where there are none."""
        with suppress(LauncherError, ApiConflict):
            found = self._api.list(f"{self._core}/events", fieldSelector=f"involvedObject.name={self._claim.name}")
            warnings = [each for each in found if each.get("type") == "Warning"]
            said = [f"{each.get('reason')}: {each.get('message')}" for each in warnings[-_EVENTS:]]
            return f"The cluster says: {' '.join(said)} " if said else ""
        return ""

    def tail(self) -> str:
        """The last log lines of the pod that failed first, or of the first that there was."""
        first = self._lives.first()
        return self._logs.tail(first) if first else "The job had no pod."

    def _failure(self, ended: Ended) -> LauncherError:
        """The error of a job that its operator calls failed."""
        late = ended.reason == "DeadlineExceeded" or "active longer than specified deadline" in ended.message
        return self._cause(f"The operator says: {ended.reason}: {ended.message}", late=late)

    def _cause(self, said: str, *, late: bool = False) -> LauncherError:
        """The error that the pods of the job's last life tell of."""
        said = f"{said}\n{self.tail()}"
        reported = self._reported()
        if reported.get("outcome") == "failed":
            return TrainingFailedError(f"Training failed: {reported['message']}\n{said}")
        if late:
            return timed_out(self._deadlines.minutes, said)
        failed = self._lives.failed()
        if failed and (why := next(filter(None, map(state.taken_away, failed)), "") or state.preempted(failed)):
            return EvictedError(
                f"{TAKEN_AWAY}\n"
                f"The cluster says: {why}\nAsk for what the training needs (launch.resources), give it another "
                f"priority, or more restarts (launch.run_policy.backoff_limit); run again, and it goes on at its last "
                f"checkpoint.\n{said}"
            )
        cause = state.how_it_ended(failed[0]) if failed else "no pod says why."
        return TrainingFailedError(f"Training failed: {cause}\n{said}")
