"""Watches one job of a cluster to its end, and says why it failed."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from gatehouse.components.training.launcher import TAKEN_AWAY, EvictedError, TrainingFailedError, timed_out
from gatehouse.components.training.launchers import pods as state
from gatehouse.components.training.launchers.api import ApiConflict, KubernetesApi
from gatehouse.components.training.launchers.claim import Claim
from gatehouse.components.training.launchers.deadlines import Deadlines
from gatehouse.components.training.launchers.logs import PodLogs
from gatehouse.components.training.launchers.operator import Ended, Operator
from gatehouse.components.training.launchers.pods import Pod
from gatehouse.errors import LauncherError

_EVENTS = 3


class Watch:
    """Looks at a job and its pods whenever the job changes, and once in a while besides.

    Pods are remembered as they were last seen: an operator may have removed the one that failed.
    """

    def __init__(
        self,
        api: KubernetesApi,
        operator: Operator,
        claim: Claim,
        namespace: str,
        logs: PodLogs,
        reported: Callable[[], dict[str, Any]],
        looked: Callable[[], None],
    ) -> None:
        """Prepare to watch the job of `claim`.

        Args:
            api: The cluster.
            operator: Of which kind the job is.
            claim: Which job.
            namespace: Of its pods.
            logs: Stream the pods' logs.
            reported: Reads what a pod said about the end of the job.
            looked: Called at every look.
        """
        self._api, self._operator, self._claim, self._logs, self._reported = api, operator, claim, logs, reported
        self._looked = looked
        self._core = f"/api/v1/namespaces/{namespace}"
        self._seen: dict[str, Pod] = {}

    def until_success(self, deadlines: Deadlines) -> None:
        """Return when the job has succeeded.

        Raises:
            LauncherError: if it ended otherwise, was deleted, or met a deadline.
        """
        while True:
            job = self._claim.current()
            pods = self.pods()
            self._logs.follow(pods)
            self._looked()
            if ended := self._operator.ended(job):
                if ended.succeeded:
                    return
                raise self._failure(ended, deadlines.minutes)
            rest = deadlines.check(pods)
            pause = max(0.001, min(self._api.pace.resync, rest))
            self._api.wait_for_change(self._claim.path, self._claim.name, job["metadata"]["resourceVersion"], pause)

    def pods(self) -> list[Pod]:
        """The pods of the job as they are now, in order of their names."""
        labels = self._operator.pods(self._claim.name)
        selector = ",".join(f"{name}={value}" for name, value in labels.items())
        found = sorted(self._api.list(f"{self._core}/pods", labelSelector=selector), key=state.name_of)
        self._seen |= {pod["metadata"]["uid"]: pod for pod in found}
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
        seen = state.failed(self._seen.values()) or list(self._seen.values())
        return self._logs.tail(seen[0]) if seen else "The job had no pod."

    def _failure(self, ended: Ended, minutes: float) -> LauncherError:
        """The error of a job that its operator calls failed."""
        said = f"The operator says: {ended.reason}: {ended.message}\n{self.tail()}"
        reported = self._reported()
        if reported.get("outcome") == "failed":
            return TrainingFailedError(f"Training failed: {reported['message']}\n{said}")
        if ended.reason == "DeadlineExceeded" or "active longer than specified deadline" in ended.message:
            return timed_out(minutes, said)
        failed = state.failed(self._seen.values())
        if failed and (why := state.taken_away(failed[-1]) or state.preempted(failed)):
            return EvictedError(
                f"{TAKEN_AWAY}\n"
                f"The cluster says: {why}\nAsk for what the training needs (launch.resources), give it another "
                f"priority, or more restarts (launch.run_policy.backoff_limit); run again, and it goes on at its last "
                f"checkpoint.\n{said}"
            )
        cause = state.how_it_ended(failed[0]) if failed else "no pod says why."
        return TrainingFailedError(f"Training failed: {cause}\n{said}")
