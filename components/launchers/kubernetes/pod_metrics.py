"""Brings what a pod sees while it trains through the store to the launcher: metrics, and the machine that they are of.

A pod appends what is new in its spool, and samples of its CPU, memory and GPUs, to
`jobs/<name>/<launch>/metrics/<hour>` every few seconds, and its environment to `…/pods`; the launcher puts the metrics
into its own spool, from which they are shipped. So the metrics of a pod that fails, is evicted or leads no result
arrive too, and a pod needs no way to MLflow. Points carry their times: those that come twice, as after a launcher that
started again, are one there.
"""

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gatehouse.components.artifacts.records import read_record
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.environment import capture_environment
from gatehouse.components.tracking.machine import PREFIX, Machine
from gatehouse.components.tracking.spool import Point, Position, SpoolWriter, discard, dropped, read
from gatehouse.errors import GatehouseError

logger = logging.getLogger(__name__)

_SEND_SECONDS = 10.0
_MOST = 20_000
_OPEN_HOURS = 2


@contextmanager
def sent_while_training(store: ArtifactStore, folder: str, spool: Path) -> Iterator[None]:
    """Send what is appended to a pod's spool, and what its machine does, every ten seconds and once more at the end."""
    sender, ended = _Sender(store, folder, spool), threading.Event()

    def send() -> None:
        while not ended.wait(_SEND_SECONDS):
            sender.send()

    store.append(f"{folder}/pods", {"environment": capture_environment().tags()})
    thread = threading.Thread(target=send, name="send-metrics", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        sender.send()


class _Sender:
    def __init__(self, store: ArtifactStore, folder: str, spool: Path) -> None:
        self._store, self._prefix, self._spool = store, f"{folder}/metrics", spool
        self._position = Position()
        self._dropped = dropped(spool)  # On a volume, the pods before have told that.
        self._machine, self._began = Machine(os.getpid()), time.monotonic()

    def send(self) -> None:
        """Send what is new; what the store does not take is sent the next time."""
        try:
            sampled = self._sample()
            while self._send_some(sampled):
                sampled = []
        except (GatehouseError, OSError) as error:
            logger.warning("Metrics are not sent for now: %s", error)

    def _sample(self) -> list[Point]:
        """What this machine does, told apart from others by its number, or by its name where it has none."""
        node = (
            "" if os.environ.get("PET_NNODES", "1") == "1" else os.environ.get("PET_NODE_RANK") or os.uname().nodename
        )
        now, step = time.time(), round(time.monotonic() - self._began)
        return [
            Point(f"{PREFIX}{node}/{name.removeprefix(PREFIX)}" if node else name, value, step, now)
            for name, value in self._machine.sample().items()
        ]

    def _send_some(self, sampled: list[Point]) -> bool:
        points, after = read(self._spool, self._position, _MOST) if self._spool.exists() else ([], self._position)
        lost = dropped(self._spool)
        if points or sampled or lost != self._dropped:
            # As text: JSON has no NaN and no infinity.
            rows = [[point.name, point.value.hex(), point.step, point.at] for point in (*points, *sampled)]
            # A folder an hour, so that neither who writes nor who reads ever lists them all.
            hour = f"{self._prefix}/{int(time.time()) // 3600:08d}"
            self._store.append(hour, {"points": rows, "dropped": lost - self._dropped})
        self._position, self._dropped = after, lost
        if points:
            discard(self._spool, after)
        return bool(points)


class Arriving:
    """What the pods of one job have sent, as its launcher takes it."""

    def __init__(self, store: ArtifactStore, folder: str, spool: Path) -> None:
        """Take from `folder` to `spool`, which is made when the first metrics arrive."""
        self._store, self._folder, self._spool = store, folder, spool
        self._writer: SpoolWriter | None = None
        self._taken: set[str] = set()
        self._past: set[str] = set()
        self._known = 0

    def take(self) -> None:
        """Append what is new to the launcher's spool; what the store does not give is taken the next time."""
        prefix = f"{self._folder}/metrics"
        try:
            hours = list(self._store.objects.folders(prefix))
            for hour in sorted(set(hours) - self._past):
                for key in sorted(set(self._store.objects.list(f"{prefix}/{hour}")) - self._taken):
                    self._append(read_record(self._store.objects, key) or {})
                    self._taken.add(key)
            self._past = set(hours[:-_OPEN_HOURS])
        except (GatehouseError, OSError) as error:
            logger.warning("Metrics of the pods are not read for now: %s", error)

    def close(self) -> None:
        """Take what is left, of every hour, and let go of the spool."""
        self._past = set()
        self.take()
        if self._writer is not None:
            self._writer.close()

    def environments(self) -> list[dict[str, str]]:
        """Environment of each pod that began, as tags."""
        keys = self._store.objects.list(f"{self._folder}/pods")
        return [(read_record(self._store.objects, key) or {}).get("environment", {}) for key in keys]

    def _append(self, body: dict[str, Any]) -> None:
        if self._writer is None:
            self._known = dropped(self._spool)
            self._writer = SpoolWriter(self._spool)
        rows = body.get("points", [])
        self._writer.take([Point(name, float.fromhex(value), step, at) for name, value, step, at in rows])
        lost = int(body.get("dropped", 0))
        again = min(lost, self._known)  # Counted by the launcher before, which had this spool.
        self._known -= again
        self._writer.drop(lost - again)
