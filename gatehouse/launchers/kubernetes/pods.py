"""The pods of a job: their states, their attempts, and the lines of their logs."""

import logging
import re
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.launcher import HUNG, HUNG_CODE, TAIL_LINES, last_lines

_HOPELESS_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = (*_HOPELESS_IMAGE, "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
_EVICTED = ("Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown")

Pod = dict[str, Any]


def runs(pod: Pod) -> bool:
    """Whether the pod has been started, and has not failed."""
    return _status(pod).get("phase") in ("Running", "Succeeded")


def unschedulable(pods: Iterable[Pod]) -> str:
    """The scheduler's message about a pod without a node; empty if there is none."""
    for pod in pods:
        for condition in _status(pod).get("conditions", []):
            if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
                return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def image_problem(pods: Iterable[Pod]) -> tuple[str, bool]:
    """Why an image cannot be pulled, and whether retries are useless; an empty text if nothing is wrong."""
    for pod in pods:
        for state in _states(pod):
            waiting = state.get("waiting", {})
            if (reason := waiting.get("reason", "")) in _IMAGE:
                return f"{reason}: {waiting.get('message', '')}", reason in _HOPELESS_IMAGE
    return "", False


def eviction(pod: Pod) -> str:
    """Why the pod was removed from its node (eviction, preemption, a lost node); empty if it was not."""
    status = _status(pod)
    if status.get("reason") in _EVICTED:
        return f"{status['reason']}: {status.get('message', '')}"
    for condition in status.get("conditions", []):
        if (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def failed(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that failed, in the order in which their containers ended."""
    ended = [pod for pod in pods if _status(pod).get("phase") == "Failed" or exit_code(pod)]
    return sorted(ended, key=lambda pod: max((end.get("finishedAt", "") for end in _ends(pod)), default=""))


def exit_code(pod: Pod) -> int:
    """The exit code of the pod's container; 0 also if it has not ended or was not started."""
    return next((end["exitCode"] for end in _ends(pod) if end.get("exitCode")), 0)


def restarts(pod: Pod) -> int:
    """How often the node has started the pod's containers again."""
    return max((status.get("restartCount", 0) for status in _status(pod).get("containerStatuses", [])), default=0)


def how_it_ended(pod: Pod) -> str:
    """How a failed pod ended, in a sentence that is the same for the same cause."""
    reasons = [end.get("reason", "") for end in _ends(pod)]
    if "OOMKilled" in reasons:
        return "a worker ran out of memory (OOMKilled). Raise launch.resources.memory, or lower the batch size."
    code = exit_code(pod)
    if code == HUNG_CODE:
        return HUNG
    return f"a pod ended with exit code {code}, expected 0." if code else "a pod failed without an exit code."


def name_of(pod: Pod) -> str:
    """The pod's name."""
    return str(pod["metadata"]["name"])


def _status(pod: Pod) -> dict[str, Any]:
    return dict(pod.get("status", {}))


def _states(pod: Pod) -> Iterator[dict[str, Any]]:
    status = _status(pod)
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        yield container.get("state", {})


def _ends(pod: Pod) -> Iterator[dict[str, Any]]:
    for state in _states(pod):
        if "terminated" in state:
            yield state["terminated"]


class Attempts:
    """The pods of one job as last seen in a list or a watch; thread-safe.

    The operator deletes a pod as soon as it has failed, and makes another of its name. So a pod of another uid counts
    as a failure of the pod before it, whether or not that was seen to fail, unless the job was suspended. An attempt
    ends when fewer pods run than the job needs. Once enough pods run again, the cause of the earlier attempt's end no
    longer counts. `failures` counts by name how often a pod has ended and was to start again, over all attempts, and
    `events` says when and how, as far as this launcher saw it.
    """

    def __init__(self, nodes: int, restarts: int | None = None) -> None:
        """Start without pods; `nodes` must run for the job to run, and a pod may restart so often (None: any)."""
        self._nodes, self._restarts = nodes, restarts
        self._pods: dict[str, Pod] = {}
        self._present: dict[str, tuple[str, int, int]] = {}
        self._gone: set[str] = set()
        self._last_failed: dict[str, Pod] = {}
        self.events: list[dict[str, str]] = []
        self._changing = threading.RLock()
        self.failures: Counter[str] = Counter()

    def progress(self) -> dict[str, Any]:
        """The state that a later launcher of the job needs; empty where failures are not counted."""
        with self._changing:
            return {} if self._restarts is None else {"failures": dict(+self.failures), "present": dict(self._present)}

    def resume(self, progress: Mapping[str, Any]) -> None:
        """Continue from what an earlier launcher of the job recorded."""
        self.failures = Counter(progress.get("failures", {}))
        self._present = {name: tuple(life) for name, life in progress.get("present", {}).items()}

    def update(self, pods: Iterable[Pod]) -> None:
        """Record the present pods."""
        with self._changing:
            now = {pod["metadata"]["uid"]: pod for pod in pods}
            for pod in now.values():
                self._count(pod)
            enough = sum(map(runs, now.values())) >= self._nodes
            self._pods = now if enough else self._pods | now

    def observe(self, pod: Pod) -> bool:
        """Record one pod after a change, perhaps its deletion; False if another has its place by now."""
        with self._changing:
            self._count(pod)
            if failed([pod]):
                self._pods[pod["metadata"]["uid"]] = pod
            return pod["metadata"]["uid"] not in self._gone

    def _count(self, pod: Pod) -> None:
        """Count what is new: a pod that ended, a container that the node started again, a pod in place of another."""
        name, uid = name_of(pod), pod["metadata"]["uid"]
        has_failed = bool(failed([pod]))
        if has_failed:
            self._last_failed[name] = pod
        if uid in self._gone:  # A list showed its successor before the watch reported its end.
            return
        if "deletionTimestamp" in pod["metadata"]:  # It may end because it is deleted: its successor counts, if any.
            has_failed = False
        before, count, ends = self._present.get(name, (uid, 0, 0))
        if uid != before:
            self._gone.add(before)
            if ends == count:  # Its end was not seen.
                self.failures[name] += 1
                self._note(name, "It was deleted, or lost with its node.")
            count = ends = 0
        count = max(count, restarts(pod))
        counted = max(ends, count + has_failed)
        if counted > ends:
            self.failures[name] += counted - ends
            self._note(name, how_it_ended(pod) if has_failed else "Its container was started again.")
        self._present[name] = (uid, count, counted)

    def _note(self, name: str, how: str) -> None:
        self.events.append({"at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "event": f"Pod {name}: {how}"})

    def suspend(self) -> None:
        """Count no failure of the present pods: the job was suspended, and new pods come when it continues."""
        with self._changing:
            self._gone.update(uid for uid, _, _ in self._present.values())
            self._present = {}

    def failed(self) -> list[Pod]:
        """Pods that failed in the last attempt; the first is the one that failed first.

        Where a pod failed too often, it is the cause, although another has its place by now.
        """
        with self._changing:
            pods = failed(self._pods.values())
            name = self._exceeding()
            if name in self._last_failed and name not in map(name_of, pods):
                pods = [self._last_failed[name], *pods]
            return pods

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
        for name, failures in self.failures.most_common(1):
            if self._restarts is not None and failures > self._restarts:
                return name
        return ""


logger = logging.getLogger(__name__)

_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")


class PodLogs:
    """The logs of one job.

    If a stream breaks, it is opened again at the last line. The API gives each line its time, by which repeated lines
    are recognised.
    """

    def __init__(self, api: KubernetesApi, namespace: str, container: str, log: Path, *, named: bool) -> None:
        """Create the log file; with `named`, each line begins with the name of its pod."""
        self._api, self._pods = api, f"/api/v1/namespaces/{namespace}/pods"
        self._container, self._named = container, named
        self._file = open(log, "wb", buffering=0)  # noqa: SIM115  # `finish` closes it.
        self._full = False
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._following: dict[str, str] = {}
        self._streamed: set[str] = set()
        self._latest: dict[str, tuple[str, set[str]]] = {}
        self._tails: dict[str, deque[str]] = {}

    def follow(self, pods: Iterable[Pod]) -> None:
        """Start to stream the logs of started pods, if not done yet; from any thread."""
        for pod in pods:
            name, uid = name_of(pod), pod["metadata"]["uid"]
            started = pod.get("status", {}).get("phase") in ("Running", "Succeeded", "Failed")
            with self._lock:
                if not started or uid in self._streamed:
                    continue
                self._streamed.add(uid)
                self._following[name] = uid
            threading.Thread(target=self._follow, args=(name, uid), name=f"log-{name}", daemon=True).start()

    def finish(self) -> None:
        """Read the lines that the streams have not delivered yet, and close the file."""
        if self._ended.is_set():
            return
        self._ended.set()
        for name, uid in list(self._following.items()):
            with suppress(LauncherError, ApiConflict), self._api.cleaning_up():
                if self._phase(name, uid):
                    for line in self._api.text(f"{self._pods}/{name}/log", self._query(uid)).splitlines():
                        self._write(name, uid, line)
        with self._lock:
            self._file.close()

    def tail(self, pod: Pod, *, ask: bool = True) -> str:
        """The last lines of one pod for an error message, from the cluster: more may have come than were streamed.

        Without `ask`, or where the pod is gone, they are the last of those that were streamed.
        """
        name, uid = name_of(pod), pod["metadata"]["uid"]
        lines = list(self._tails.get(uid, ()))
        with suppress(LauncherError, ApiConflict):
            if ask and self._phase(name, uid):
                query = {"container": self._container, "tailLines": TAIL_LINES}
                lines = self._api.text(f"{self._pods}/{name}/log", query).splitlines() or lines
        return last_lines(lines, f"the log of pod {name}")

    def _follow(self, name: str, uid: str) -> None:
        while not self._ended.is_set() and self._following[name] == uid:
            with suppress(Exception):  # The API does not answer, or the container has not started: try again.
                phase = self._phase(name, uid)
                if not phase:
                    return
                query = self._query(uid) | {"follow": "true"}
                for line in self._api.lines(f"{self._pods}/{name}/log", query, silence=self._api.timeouts.retry):
                    if self._ended.is_set():
                        return
                    self._write(name, uid, line.decode(errors="replace"))
                if phase in ("Succeeded", "Failed"):
                    return  # The pod had ended before the stream started, so the stream was complete.
            self._ended.wait(self._api.timeouts.min_interval)

    def _phase(self, name: str, uid: str) -> str:
        """The phase of the pod with this uid; empty if it is gone, even if another pod has its name now."""
        pod = self._api.get(f"{self._pods}/{name}")
        return str(pod["status"]["phase"]) if pod["metadata"]["uid"] == uid else ""

    def _query(self, uid: str) -> dict[str, str]:
        query = {"container": self._container, "timestamps": "true"}
        # The API takes whole seconds, so some lines come again. `_write` leaves them out.
        return query | ({"sinceTime": latest[:19] + "Z"} if (latest := self._latest.get(uid, ("", set()))[0]) else {})

    def _write(self, name: str, uid: str, line: str) -> None:
        stamp, _, text = line.partition(" ")
        at = _instant(stamp)
        with self._lock:
            latest, shown_then = self._latest.get(uid, ("", set()))
            if not at:  # A message of the API, which has no time.
                at, text = latest, line
            if self._file.closed or at < latest or (at == latest and text in shown_then):
                return
            self._latest[uid] = (at, {text} if at > latest else shown_then | {text})
            self._tails.setdefault(uid, deque(maxlen=TAIL_LINES)).append(text)
            shown = f"[{name}] {text}" if self._named else text
            try:
                self._file.write(shown.encode() + b"\n")
            except OSError as error:  # If the disk is full, training continues without its log.
                if not self._full:
                    logger.warning(
                        "%s cannot be written (%s): the training continues.", self._file.name, error.strerror
                    )
                self._full = True
        logger.info("%s", shown)


def _instant(stamp: str) -> str:
    """The time of a line, in UTC with nine digits, so that times compare as text; empty for a text that is no time.

    A node writes times in its own zone, and may omit zeros at the end.
    """
    if not (match := _STAMP.fullmatch(stamp)):
        return ""
    seconds = datetime.fromisoformat(match[1] + match[3].replace("Z", "+00:00")).astimezone(UTC)
    return f"{seconds:%Y-%m-%dT%H:%M:%S}.{match[2] or '':0<9}Z"
