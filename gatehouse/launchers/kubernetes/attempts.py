"""Records the pods of a job over its attempts, counts how often each ended, and finds the pod that failed first."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from gatehouse.launchers.kubernetes import pod_status
from gatehouse.launchers.kubernetes.pod_status import Pod


class Attempts:
    """The pods of one job as they were last seen, in a list or in a watch; from any thread.

    The operator deletes a pod as soon as it has failed, and makes another of its name. So a pod of another uid counts
    as a failure of the pod before it, whether or not that was seen to fail, unless the job was suspended. An attempt
    ends when fewer pods run than the job needs. Once enough pods run again, the cause of the earlier attempt's end no
    longer counts.

    Attributes:
        failures: How often the pod of each name has ended and was to start again, over all attempts.
    """

    def __init__(self, min_pods: int, restarts: int | None = None) -> None:
        """Start without pods; the job runs if at least `min_pods` pods run.

        Args:
            min_pods: How many that are.
            restarts: How often a pod may start again; None where nobody counts that.
        """
        self._min_pods, self._restarts = min_pods, restarts
        self._pods: dict[str, Pod] = {}
        self._present: dict[str, tuple[str, int, int]] = {}
        self._gone: set[str] = set()
        self._last_failed: dict[str, Pod] = {}
        self._changing = threading.RLock()
        self.failures: Counter[str] = Counter()

    def progress(self) -> dict[str, Any]:
        """What a later launcher of the job needs; nothing where nobody counts failures."""
        with self._changing:
            return {} if self._restarts is None else {"failures": dict(+self.failures), "present": dict(self._present)}

    def resume(self, progress: Mapping[str, Any]) -> None:
        """Continue from what an earlier launcher of the job recorded."""
        self.failures = Counter(progress.get("failures", {}))
        self._present = {name: tuple(life) for name, life in progress.get("present", {}).items()}

    def update(self, found: Iterable[Pod]) -> None:
        """Record the present pods."""
        with self._changing:
            now = {pod["metadata"]["uid"]: pod for pod in found}
            for pod in now.values():
                self._count(pod)
            runs = sum(map(pod_status.runs, now.values())) >= self._min_pods
            self._pods = now if runs else self._pods | now

    def observe(self, pod: Pod) -> bool:
        """Record one pod as it was after a change, and perhaps is no more; False if another has its place by now."""
        with self._changing:
            self._count(pod)
            if pod_status.failed([pod]):
                self._pods[pod["metadata"]["uid"]] = pod
            return pod["metadata"]["uid"] not in self._gone

    def _count(self, pod: Pod) -> None:
        """Count what is new: a pod that ended, a container that the node started again, a pod in place of another."""
        name, uid = pod_status.name_of(pod), pod["metadata"]["uid"]
        failed = bool(pod_status.failed([pod]))
        if failed:
            self._last_failed[name] = pod
        if uid in self._gone:  # A list showed its successor before the watch told of its end.
            return
        if "deletionTimestamp" in pod["metadata"]:  # It may end because it is deleted: its successor counts, if any.
            failed = False
        before, restarts, ends = self._present.get(name, (uid, 0, 0))
        if uid != before:
            self._gone.add(before)
            self.failures[name] += ends == restarts  # It went without an end that was seen.
            restarts = ends = 0
        restarts = max(restarts, pod_status.restarts(pod))
        counted = max(ends, restarts + failed)
        self.failures[name] += counted - ends
        self._present[name] = (uid, restarts, counted)

    def suspend(self) -> None:
        """Count no failure of the present pods: the job was suspended, and others come when it goes on."""
        with self._changing:
            self._gone.update(uid for uid, _, _ in self._present.values())
            self._present = {}

    def failed(self) -> list[Pod]:
        """Pods that failed in the last attempt; the first is the one that failed first.

        Where a pod failed too often, it is the cause, although another has its place by now.
        """
        with self._changing:
            found = pod_status.failed(self._pods.values())
            name = self._exceeding()
            if name in self._last_failed and name not in map(pod_status.name_of, found):
                found = [self._last_failed[name], *found]
            return found

    def first(self) -> Pod | None:
        """The pod that failed first in the last attempt, or any pod if none failed; None without pods."""
        return next(iter(self.failed() or self._pods.values()), None)

    def exceeding(self) -> str:
        """A sentence that names a pod which ended more often than it may start again; empty if there is none."""
        with self._changing:
            if name := self._exceeding():
                return (
                    f"Pod {name} failed {self.failures[name]} times, with "
                    f"launch.run_policy.backoff_limit={self._restarts}."
                )
            return ""

    def _exceeding(self) -> str:
        for name, failed in self.failures.most_common(1):
            if self._restarts is not None and failed > self._restarts:
                return name
        return ""
