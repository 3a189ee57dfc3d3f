"""Leases of writers and sweeps of the collector: two kinds of records that keep writers and collector apart.

A writer writes its lease first and looks for sweeps second. The collector writes its sweep first and looks for leases
second. So if both work on the same key, at least one of them sees the other (Dekker's algorithm). A writer that sees a
sweep waits until the sweep has ended; a collector that sees a lease does not delete the key. The age of a record is the
difference of two times of the store's own clock, so the machines' clocks do not matter.
"""

import logging
import threading
import time
import uuid
from collections.abc import Iterable

from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import create_record, read_record, read_records, remove_record

logger = logging.getLogger(__name__)

LEASES = "leases"
SWEEPS = "gc/sweeps"
TOMBSTONES = "gc/tombstones"
LEASE_LIMIT = 600.0
"""Seconds without renewal after which a lease is void: its writer was killed."""
SWEEP_LIMIT = 60.0
"""Seconds after which a sweep is void. A collector deletes only in the first half of this time."""
_HEARTBEAT = LEASE_LIMIT / 6
_PAUSE = 0.05


class Lease:
    """A record that a writer works on keys: it checks which of them exist, writes the others, and commits.

    Use it in a `with` statement. At the start of the block the lease is in the store, no sweep of these keys is
    running, and keys with a tombstone are renewed. A thread renews the lease until the end of the block. Call
    `wait_for_sweeps` after the commit and before the last check of the blobs.
    """

    def __init__(self, objects: ObjectStore, keys: Iterable[str]) -> None:
        self._objects = objects
        self._keys = frozenset(keys)
        self._key = ""
        self._ended = threading.Event()

    def __enter__(self) -> "Lease":
        self._write()
        threading.Thread(target=self._beat, name="lease", daemon=True).start()
        try:
            self.wait_for_sweeps()
            # A renewed key has a new generation. The collector deletes only the generation that its tombstone names.
            tombstones = read_records(self._objects, self._objects.list(TOMBSTONES))
            marked = {name for body in tombstones.values() for name, _ in body["candidates"]}
            for key in sorted(self._keys & marked):
                self._objects.renew(key)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        try:
            remove_record(self._objects, self._key)
        except Exception as error:
            logger.warning("%s stays until it lapses: %s", self._key, error)

    def wait_for_sweeps(self) -> None:
        """Wait until no sweep of these keys is running. The sweep of a dead collector ends after `SWEEP_LIMIT`."""
        while sweeps := list(self._objects.list(SWEEPS)):
            self._renew()
            if not any(self._keys & keys for keys in _covered(self._objects, sweeps, self.renewed, SWEEP_LIMIT)):
                return
            time.sleep(_PAUSE)

    @property
    def renewed(self) -> float:
        """When the lease was written or renewed last, in seconds since 1970 by the store's clock."""
        stat = self._objects.stat(self._key)
        return stat.modified if stat else float("-inf")

    def _write(self) -> None:
        self._key = f"{LEASES}/{uuid.uuid4().hex}.json"
        create_record(self._objects, self._key, {"keys": sorted(self._keys)})

    def _renew(self) -> None:
        if not self._objects.renew(self._key) and not self._ended.is_set():
            self._write()

    def _beat(self) -> None:
        while not self._ended.wait(_HEARTBEAT):
            try:
                self._renew()
            except Exception as error:
                logger.warning("%s could not be renewed: %s", self._key, error)


def leased(objects: ObjectStore, now: float) -> frozenset[str]:
    """All keys under a lease that is valid at `now`, in seconds since 1970 by the store's clock."""
    return frozenset().union(*_covered(objects, list(objects.list(LEASES)), now, LEASE_LIMIT))


def remove_lapsed(objects: ObjectStore, now: float) -> int:
    """Remove leases that are void at `now` by the store's clock (their writers were killed); returns how many."""
    stats = objects.stats(list(objects.list(LEASES)))
    lapsed = [(key, stat) for key, stat in stats.items() if stat is not None and now - stat.modified > LEASE_LIMIT]
    return sum(objects.delete(key, stat.generation) for key, stat in lapsed)


def _covered(objects: ObjectStore, records: list[str], now: float, limit: float) -> list[frozenset[str]]:
    """The keys of each of these leases or sweeps that is still valid."""
    stats = objects.stats(records)
    valid = [key for key in records if (stat := stats[key]) is not None and now - stat.modified <= limit]
    bodies = (read_record(objects, key) for key in valid)
    return [frozenset(body["keys"]) for body in bodies if body is not None]
