"""The flags that writers and the collector raise before they look: a writer's lease, the collector's sweep.

Each raises its own flag first and looks for the other's second, so of two that work on one key at least one sees the
other (Dekker). A writer that sees a sweep waits for its end; a collector that sees a lease spares the key. Time is the
store's own: the age of a flag is the difference of two times that the store itself gave.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterable
from types import TracebackType

from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.records import create_record, read_record, read_records, remove_record

logger = logging.getLogger(__name__)

LEASES = "leases"
SWEEPS = "gc/sweeps"
TOMBSTONES = "gc/tombstones"
LEASE_LIMIT = 600.0
"""Seconds after which a lease that nobody renewed counts for nothing: its writer was killed."""
SWEEP_LIMIT = 60.0
"""Seconds after which a sweep counts for nothing. A collector deletes only in the first half of them."""
_HEARTBEAT = LEASE_LIMIT / 6
_PAUSE = 0.05


class Lease:
    """A writer's claim on keys, while it looks which exist, writes the others, and commits.

    Use it as a context: on entry the lease stands in the store, no sweep of these keys is under way, and those with a
    tombstone are renewed. A thread renews the lease until the end. `settle` belongs between the commit and the last
    look at the blobs.
    """

    def __init__(self, objects: ObjectStore, keys: Iterable[str]) -> None:
        self._objects = objects
        self._keys = frozenset(keys)
        self._key = ""
        self._ended = threading.Event()

    def __enter__(self) -> "Lease":
        self._raise()
        threading.Thread(target=self._beat, name="lease", daemon=True).start()
        try:
            self.settle()
            self._rescue()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        try:
            remove_record(self._objects, self._key)
        except Exception as failure:
            logger.warning("%s stays until it lapses: %s", self._key, failure)

    def settle(self) -> None:
        """Wait until no sweep of these keys is under way: at most `SWEEP_LIMIT` seconds after a collector's death."""
        while self._swept():
            time.sleep(_PAUSE)

    @property
    def raised(self) -> float:
        """When it was raised or renewed last, by the store's time."""
        mine = self._objects.stat(self._key)
        return mine.modified if mine else float("-inf")

    def _rescue(self) -> None:
        """Renew what has a tombstone: its generation is another one then, and a delete by the old one does nothing."""
        tombstones = read_records(self._objects, self._objects.list(TOMBSTONES))
        marked = {name for body in tombstones.values() for name, _ in body["candidates"]}
        for key in sorted(self._keys & marked):
            self._objects.renew(key)

    def _raise(self) -> None:
        self._key = f"{LEASES}/{uuid.uuid4().hex}.json"
        create_record(self._objects, self._key, {"keys": sorted(self._keys)})

    def _renew(self) -> None:
        if not self._objects.renew(self._key) and not self._ended.is_set():
            self._raise()

    def _beat(self) -> None:
        while not self._ended.wait(_HEARTBEAT):
            try:
                self._renew()
            except Exception as error:
                logger.warning("%s could not be renewed: %s", self._key, error)

    def _swept(self) -> bool:
        sweeps = list(self._objects.list(SWEEPS))
        if not sweeps:
            return False
        self._renew()
        covered = _covered(self._objects, sweeps, self.raised, SWEEP_LIMIT)
        return any(self._keys & keys for keys in covered)


def leased(objects: ObjectStore, now: float) -> frozenset[str]:
    """All keys under a lease that has not lapsed at `now`, a time of the store."""
    return frozenset().union(*_covered(objects, list(objects.list(LEASES)), now, LEASE_LIMIT))


def _covered(objects: ObjectStore, flags: list[str], now: float, limit: float) -> list[frozenset[str]]:
    found = objects.stats(flags)
    standing = [key for key in flags if (stat := found[key]) is not None and now - stat.modified <= limit]
    bodies = (read_record(objects, key) for key in standing)
    return [frozenset(body["keys"]) for body in bodies if body is not None]
