"""Remembers the pods of a job through their lives: those of the last one say why a job failed, and all are counted."""

from collections import Counter
from collections.abc import Iterable

from gatehouse.components.launchers.kubernetes import pod_status as state
from gatehouse.components.launchers.kubernetes.pod_status import Pod


class Lives:
    """The pods of one job as they were last seen: an operator may have removed the one that failed.

    Once the job runs again, what ended its life before is no cause any more.
    """

    def __init__(self, fewest: int) -> None:
        """Remember nothing yet; the job runs where at least `fewest` pods do."""
        self._fewest = fewest
        self._seen: dict[str, Pod] = {}
        self._counted: set[str] = set()
        self.failures: Counter[str] = Counter()
        """How often the pod of each name has failed."""

    def see(self, found: Iterable[Pod]) -> None:
        """Take notice of the pods that there are now."""
        now = {pod["metadata"]["uid"]: pod for pod in found}
        runs = sum(map(state.runs, now.values())) >= self._fewest
        self._seen = now if runs else self._seen | now
        for pod in state.failed(now.values()):
            if (uid := pod["metadata"]["uid"]) not in self._counted:
                self._counted.add(uid)
                self.failures[state.name_of(pod)] += 1

    def failed(self) -> list[Pod]:
        """Pods that failed in the last life, first the one that did so first."""
        return state.failed(self._seen.values())

    def first(self) -> Pod | None:
        """The pod that failed first, or the first that there was; None where the job had none."""
        return next(iter(self.failed() or self._seen.values()), None)

    def more_than(self, restarts: int) -> str:
        """Which pod failed more often than it may start again, in words; empty where none did."""
        for name, failed in self.failures.most_common(1):
            if failed > restarts:
                return f"Pod {name} failed {failed} times, with launch.run_policy.backoff_limit={restarts}."
        return ""
