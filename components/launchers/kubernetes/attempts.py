"""Records the pods of a job over its attempts, counts their failures, and finds the pod that failed first."""

from collections import Counter
from collections.abc import Iterable

from gatehouse.components.launchers.kubernetes import pod_status
from gatehouse.components.launchers.kubernetes.pod_status import Pod


class Attempts:
    """The pods of one job as they were last seen.

    The operator may have removed a failed pod. An attempt ends when fewer pods run than the job needs. Once enough pods
    run again, the cause of the earlier attempt's end no longer counts.

    Attributes:
        failures: How often the pod of each name has failed, over all attempts.
    """

    def __init__(self, min_pods: int) -> None:
        """Start without pods; the job runs if at least `min_pods` pods run."""
        self._min_pods = min_pods
        self._pods: dict[str, Pod] = {}
        self._counted: set[str] = set()
        self.failures: Counter[str] = Counter()

    def update(self, found: Iterable[Pod]) -> None:
        """Record the present pods."""
        now = {pod["metadata"]["uid"]: pod for pod in found}
        runs = sum(map(pod_status.runs, now.values())) >= self._min_pods
        self._pods = now if runs else self._pods | now
        for pod in pod_status.failed(now.values()):
            if (uid := pod["metadata"]["uid"]) not in self._counted:
                self._counted.add(uid)
                self.failures[pod_status.name_of(pod)] += 1

    def failed(self) -> list[Pod]:
        """Pods that failed in the last attempt; the first is the one that failed first."""
        return pod_status.failed(self._pods.values())

    def first(self) -> Pod | None:
        """The pod that failed first in the last attempt, or any pod if none failed; None without pods."""
        return next(iter(self.failed() or self._pods.values()), None)

    def exceeding(self, restarts: int) -> str:
        """A sentence that names a pod which failed more often than it may restart; empty if there is none."""
        for name, failed in self.failures.most_common(1):
            if failed > restarts:
                return f"Pod {name} failed {failed} times, with launch.run_policy.backoff_limit={restarts}."
        return ""
