"""Garbage collection in two phases: tombstones for unneeded objects, and a sweep after a grace period.

A blob is deleted only if it was found unneeded twice, a grace period apart, and was not written again in between. For
each batch the sweep first writes a record of what it will delete, then reads the leases of writers, then checks again
what is needed, and only then deletes. docs/decisions/garbage-collection.md explains why this is safe beside writers,
other collectors and kills.
"""

import itertools
import shutil
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gatehouse.store.deprecation import marker_of
from gatehouse.store.leases import LEASE_LIMIT, LEASES, SWEEP_LIMIT, SWEEPS, TOMBSTONES, leased
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.local import LOCK, LocalObjects
from gatehouse.store.pages import pages_of
from gatehouse.store.publishing import QUARANTINE
from gatehouse.store.reachability import Reachability, Reachable
from gatehouse.store.records import create_record, read_records, remove_record
from gatehouse.store.store import ArtifactStore, in_use

CLOCK = "gc/clock"
DAY = 86_400.0
_BATCH = 500
_QUARANTINED = 30 * DAY
_MAY_NEED = "a broken manifest may need it"
T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """One object that may be deleted, or that was requested and stays, with the reason `why`.

    `kind` is blob, manifest, quarantined, lease, sweep or temporary; `bytes` are freed by its deletion. A `generation`
    later than the one seen is not deleted. `state` is found, waiting, deleted, kept, or broken (a manifest that is
    missing or cannot be read). `due` is when it may be swept, by the store's clock; 0 if it has no tombstone yet.
    """

    kind: str
    key: str
    bytes: int
    generation: str
    why: str
    state: str = "found"
    due: float = 0.0


@dataclass(frozen=True)
class Collection:
    """The scope of a collection besides blobs that no manifest lists: deprecated manifests that nothing needs.

    With `forget`, memos and run records do not count as a need. `grace` is in seconds, from tombstone to sweep.
    """

    deprecated: bool = False
    forget: bool = False
    grace: float = DAY


class Collector:
    """One run of the collector over one store. Its methods raise CorruptArtifactError if a record cannot be read."""

    def __init__(self, store: ArtifactStore, collection: Collection) -> None:
        self.store = store
        self.collection = collection
        self._objects = store.objects
        self._reachability = Reachability(store)
        self._needed = Reachable({}, {})

    def look(self) -> list[Item]:
        """List everything that may be deleted, and what was requested but stays. Writes and deletes nothing.

        The age of killed processes' records is measured by this machine's clock, because reading the store's clock
        needs a write.
        """
        return self._items(time.time())

    def _items(self, now: float) -> list[Item]:
        needed = self._look()
        marked = self._tombstones()
        return [self._dated(item, marked) for item in self._garbage(needed, now)]

    def mark(self) -> list[Item]:
        """First phase: write the missing tombstones, and return what `look` then lists."""
        items = self._items(store_time(self._objects))
        fresh = [item for item in items if item.state == "found" and item.kind in ("blob", "manifest")]
        if not fresh:
            return items
        body = {"candidates": [[item.key, item.generation] for item in fresh]}
        create_record(self._objects, f"{TOMBSTONES}/{uuid.uuid4().hex}.json", body)
        marked = self._tombstones()
        return [self._dated(item, marked) if item in fresh else item for item in items]

    def sweep(self, marked: Iterable[Item]) -> list[Item]:
        """Second phase: delete what is due, unneeded, unleased and not renewed; returns all items, with new states."""
        now = store_time(self._objects)
        items = list(marked)
        due = [item for item in items if item.state == "waiting" and item.due <= now]
        due.sort(key=lambda item: item.kind != "manifest")
        done = {item.key: item for batch in _batches(due) for item in self._sweep_batch(batch)}
        for item in items:
            if item.kind == "temporary":
                path = Path(self.store.address) / item.key
                shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
                done[item.key] = replace(item, state="deleted")
            elif item.kind in ("lease", "sweep", "quarantined"):
                deleted = self._objects.delete(item.key, item.generation)
                done[item.key] = replace(item, state="deleted" if deleted else "kept")
        outcome = [done.get(item.key, item) for item in items]
        # Tombstones go whose candidates are all gone, written again, or needed again.
        kept = {item.key for item in outcome if item.state == "kept"} | self._needed.blobs
        for key, body in read_records(self._objects, self._objects.list(TOMBSTONES)).items():
            candidates = {name: generation for name, generation in body["candidates"] if name not in kept}
            stats = self._objects.stats(candidates)
            if not any((current := stats[name]) and current.generation == seen for name, seen in candidates.items()):
                remove_record(self._objects, key)
        return outcome

    def _sweep_batch(self, batch: list[Item]) -> Iterator[Item]:
        began = time.monotonic()
        record = f"{SWEEPS}/{uuid.uuid4().hex}.json"
        create_record(self._objects, record, {"keys": [item.key for item in batch]})
        try:
            written = self._objects.stat(record)
            protected = leased(self._objects, written.modified if written else 0.0)
            needed = self._look()
            for item in batch:
                is_needed = needed.needs_blob if item.kind == "blob" else needed.needs_manifest
                if item.key in protected:
                    yield replace(item, state="kept", why="a writer holds a lease on it")
                elif is_needed(item.key):
                    yield replace(item, state="kept", why="is needed again")
                elif written is None or time.monotonic() - began > SWEEP_LIMIT / 2:
                    yield replace(item, why="this sweep took too long; run it again")
                elif not self._objects.delete(item.key, item.generation):
                    yield replace(item, state="kept", why="was renewed or deleted meanwhile")
                else:
                    if item.kind == "manifest":
                        reference = item.key.removesuffix("/manifest.json")
                        for key in [*self._objects.list(reference), *pages_of(self.store, reference)]:
                            remove_record(self._objects, key)
                    yield replace(item, state="deleted")
        finally:
            remove_record(self._objects, record)

    def _look(self) -> Reachable:
        self._needed = self._reachability.look(deprecated=self.collection.deprecated, forget=self.collection.forget)
        return self._needed

    def _tombstones(self) -> dict[tuple[str, str], float]:
        """Key and generation of every candidate, with the time of its oldest tombstone."""
        keys = list(self._objects.list(TOMBSTONES))
        stats = self._objects.stats(keys)
        marked: dict[tuple[str, str], float] = {}
        for key, body in read_records(self._objects, keys).items():
            if written := stats[key]:
                for name, generation in body["candidates"]:
                    earlier = marked.get((name, generation), written.modified)
                    marked[name, generation] = min(written.modified, earlier)
        return marked

    def _dated(self, item: Item, marked: dict[tuple[str, str], float]) -> Item:
        at = marked.get((item.key, item.generation))
        if at is None or item.kind not in ("blob", "manifest"):
            return item
        return replace(item, state="waiting", due=at + self.collection.grace)

    def _garbage(self, needed: Reachable, now: float) -> Iterator[Item]:
        for reference, message in needed.broken.items():
            key = f"{reference}/manifest.json"
            broken = self._objects.stat(key)
            yield Item("manifest", key, broken.bytes if broken else 0, "", message, "broken")
        if self.collection.deprecated:
            keys = {f"{reference}/manifest.json": reference for reference in needed.manifests}
            markers = self._objects.stats(marker_of(reference) for reference in needed.manifests)
            for key, manifest in self._objects.stats(keys).items():
                if manifest is None or markers[marker_of(keys[key])] is None:
                    continue
                state, why = "found", "is deprecated, and nothing needs it"
                if needed.needs_manifest(key):
                    state, why = "kept", f"is deprecated, but {needed.holders.get(keys[key], _MAY_NEED)}"
                yield Item("manifest", key, manifest.bytes, manifest.generation, why, state)
        unneeded = {entry.blob for reference in needed.unneeded for entry in needed.manifests[reference].files}
        orphans = [key for key in self._objects.list("blobs") if key not in needed.blobs]
        for batch in _batches(orphans):
            for key, blob in self._objects.stats(batch).items():
                if blob is None:
                    continue
                why = "no manifest lists it"
                if key in unneeded:
                    why = "only deprecated artifacts that nothing needs list it"
                elif key in needed.erased:
                    why = "was erased"
                state, why = ("kept", f"{why}, but {_MAY_NEED}") if needed.needs_blob(key) else ("found", why)
                yield Item("blob", key, blob.bytes, blob.generation, why, state)
        yield from self._lapsed("quarantined", QUARANTINE, now - _QUARANTINED, "it was damaged, and put aside long ago")
        yield from self._lapsed("lease", LEASES, now - LEASE_LIMIT, "its writer was killed")
        for folder in (SWEEPS, CLOCK):
            yield from self._lapsed("sweep", folder, now - SWEEP_LIMIT, "its collector was killed")
        if isinstance(self._objects, LocalObjects):
            yield from _leftovers(self._objects.root, now - self.collection.grace)

    def _lapsed(self, kind: str, folder: str, before: float, why: str) -> Iterator[Item]:
        for key, record in self._objects.stats(list(self._objects.list(folder))).items():
            if record is not None and record.modified < before:
                yield Item(kind, key, record.bytes, record.generation, why)


def store_time(objects: ObjectStore) -> float:
    """Seconds since 1970 by the store's own clock, which is read from a record that is written for it."""
    key = f"{CLOCK}/{uuid.uuid4().hex}.json"
    create_record(objects, key, {})
    record = objects.stat(key)
    remove_record(objects, key)
    return record.modified if record else 0.0


def _leftovers(root: Path, before: float) -> Iterator[Item]:
    """Files and workspaces in a local store's `tmp` whose process has ended."""
    for path in sorted((root / "tmp").iterdir()):
        if path == root / LOCK or in_use(path):
            continue
        try:
            stats = [inside.lstat() for inside in (path, *path.rglob("*"))]
        except FileNotFoundError:
            continue
        if max(entry.st_mtime for entry in stats) < before:
            size = sum(entry.st_size for entry in stats if stat.S_ISREG(entry.st_mode))
            yield Item("temporary", f"tmp/{path.name}", size, "", "its writer was killed")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, _BATCH)):
        yield batch
