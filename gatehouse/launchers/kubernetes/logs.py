"""Streams the logs of a job's pods to the job's log file and to this process's log, each line once."""

import logging
import re
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.kubernetes.pods import Pod, name_of
from gatehouse.launchers.launcher import TAIL_LINES, last_lines

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
