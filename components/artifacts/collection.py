"""Garbage collection in two phases: tombstones for what nothing reaches, and after a grace period a sweep.

Nothing is deleted that was not seen unreached twice, a grace period apart, in the same generation. The sweep raises a
flag for each batch, then reads leases, then roots, then deletes. Why this is safe beside writers, other collectors and
kills is argued in docs/decisions/garbage-collection.md.
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

from gatehouse.components.artifacts.deprecation import marker_of
from gatehouse.components.artifacts.leases import LEASE_LIMIT, LEASES, SWEEP_LIMIT, SWEEPS, TOMBSTONES, leased
from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.objects.local import LOCK, LocalObjects
from gatehouse.components.artifacts.records import create_record, read_records, remove_record
from gatehouse.components.artifacts.roots import Reach, Roots
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.artifacts.workspaces import in_use

CLOCK = "gc/clock"
DAY = 86_400.0
_BATCH = 500
T = TypeVar("T")


@dataclass(frozen=True)
class Item:
    """One thing that may go, or that stays although it was asked for.

    Attributes:
        kind: blob, manifest, lease, sweep or temporary.
        key: Where it is in the store.
        bytes: What deleting it frees.
        generation: The writing of the key that was seen; another one is not touched.
        why: Why it may go, or why it stays.
        state: found, waiting, deleted or kept.
        due: When it may be swept, by the store's clock in seconds since 1970; 0 where it has no tombstone yet.
    """

    kind: str
    key: str
    bytes: int
    generation: str
    why: str
    state: str = "found"
    due: float = 0.0


@dataclass(frozen=True)
class Wish:
    """What a collection is asked to let go of besides blobs that no manifest lists.

    Attributes:
        deprecated: Deprecated manifests that nothing live reaches.
        forget: Also those that only memos and run records name.
        grace: Seconds between tombstone and sweep.
    """

    deprecated: bool = False
    forget: bool = False
    grace: float = DAY


class Collector:
    """One run of the collector over one store."""

    def __init__(self, store: ArtifactStore, wish: Wish) -> None:
        self.store = store
        self.wish = wish
        self._objects = store.objects
        self._roots = Roots(store)
        self._reached = Reach({}, {})

    def look(self) -> list[Item]:
        """Everything that may go, and what was asked for and stays. Writes and deletes nothing.

        What a killed process left is told by this machine's clock here, as the store's is read from a record.

        Raises:
            CorruptArtifactError: if a manifest or a record cannot be read: what it reaches is unknown then.
        """
        return self._found(time.time())

    def _found(self, now: float) -> list[Item]:
        reached = self._reach()
        marked = self._tombstones()
        return [self._dated(item, marked) for item in self._garbage(reached, now)]

    def mark(self) -> list[Item]:
        """First phase: write tombstones for what has none, and return what `look` then finds."""
        found = self._found(store_time(self._objects))
        fresh = [item for item in found if item.state == "found" and item.kind in ("blob", "manifest")]
        if fresh:
            body = {"candidates": [[item.key, item.generation] for item in fresh]}
            create_record(self._objects, f"{TOMBSTONES}/{uuid.uuid4().hex}.json", body)
        marked = self._tombstones() if fresh else {}
        return [self._dated(item, marked) if item in fresh else item for item in found]

    def sweep(self, marked: Iterable[Item]) -> list[Item]:
        """Second phase: delete what is due and still unreached, unleased and in the generation that was seen."""
        now = store_time(self._objects)
        items = list(marked)
        due = [item for item in items if item.state == "waiting" and item.due <= now]
        due.sort(key=lambda item: item.kind != "manifest")
        done = {item.key: item for batch in _batches(due) for item in self._sweep_batch(batch)}
        done |= {item.key: self._drop(item) for item in items if item.kind in ("lease", "sweep", "temporary")}
        outcome = [done.get(item.key, item) for item in items]
        self._bury(outcome)
        return outcome

    def _sweep_batch(self, batch: list[Item]) -> Iterator[Item]:
        began = time.monotonic()
        flag = f"{SWEEPS}/{uuid.uuid4().hex}.json"
        create_record(self._objects, flag, {"keys": [item.key for item in batch]})
        try:
            raised = self._objects.stat(flag)
            protected = leased(self._objects, raised.modified if raised else 0.0)
            reached = self._reach()
            for item in batch:
                if item.key in protected:
                    yield replace(item, state="kept", why="a writer holds a lease on it")
                elif not _unreached(item, reached):
                    yield replace(item, state="kept", why="is reached again")
                elif raised is None or time.monotonic() - began > SWEEP_LIMIT / 2:
                    yield replace(item, why="this sweep took too long; run it again")
                elif not self._objects.delete(item.key, item.generation):
                    yield replace(item, state="kept", why="was renewed or deleted meanwhile")
                else:
                    yield self._deleted(item)
        finally:
            remove_record(self._objects, flag)

    def _deleted(self, item: Item) -> Item:
        if item.kind == "manifest":
            for key in list(self._objects.list(item.key.rsplit("/", 1)[0])):
                remove_record(self._objects, key)
        return replace(item, state="deleted")

    def _drop(self, item: Item) -> Item:
        if item.kind != "temporary":
            gone = self._objects.delete(item.key, item.generation)
            return replace(item, state="deleted" if gone else "kept")
        path = Path(self.store.address) / item.key
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)
        return replace(item, state="deleted")

    def _bury(self, outcome: list[Item]) -> None:
        """Remove tombstone records whose candidates are all gone, written anew, or reached again."""
        kept = {item.key for item in outcome if item.state == "kept"} | self._reached.blobs
        for key, body in read_records(self._objects, self._objects.list(TOMBSTONES)).items():
            seen = {name: generation for name, generation in body["candidates"] if name not in kept}
            found = self._objects.stats(seen)
            if not any((now := found[name]) and now.generation == generation for name, generation in seen.items()):
                remove_record(self._objects, key)

    def _reach(self) -> Reach:
        self._reached = self._roots.reach(deprecated=self.wish.deprecated, forget=self.wish.forget)
        return self._reached

    def _tombstones(self) -> dict[tuple[str, str], float]:
        """Key and generation of every candidate, with the time of its oldest tombstone."""
        keys = list(self._objects.list(TOMBSTONES))
        times = self._objects.stats(keys)
        marked: dict[tuple[str, str], float] = {}
        for key, body in read_records(self._objects, keys).items():
            written = times[key]
            for name, generation in body["candidates"] if written else ():
                at = min(written.modified, marked.get((name, generation), written.modified)) if written else 0.0
                marked[name, generation] = at
        return marked

    def _dated(self, item: Item, marked: dict[tuple[str, str], float]) -> Item:
        at = marked.get((item.key, item.generation))
        if at is None or item.kind not in ("blob", "manifest"):
            return item
        return replace(item, state="waiting", due=at + self.wish.grace)

    def _garbage(self, reached: Reach, now: float) -> Iterator[Item]:
        yield from self._manifest_items(reached)
        listed = {entry.blob for reference in reached.unreached for entry in reached.manifests[reference].files}
        orphans = [key for key in self._objects.list("blobs") if key not in reached.blobs]
        for batch in _batches(orphans):
            for key, found in self._objects.stats(batch).items():
                if found is not None:
                    why = "no manifest lists it"
                    why = "was erased" if key in reached.banned else why
                    why = "only unreached deprecated artifacts list it" if key in listed else why
                    yield Item("blob", key, found.bytes, found.generation, why)
        yield from self._lapsed("lease", LEASES, now - LEASE_LIMIT, "its writer was killed")
        for folder in (SWEEPS, CLOCK):
            yield from self._lapsed("sweep", folder, now - SWEEP_LIMIT, "its collector was killed")
        if isinstance(self._objects, LocalObjects):
            yield from _leftovers(self._objects.root, now - self.wish.grace)

    def _manifest_items(self, reached: Reach) -> Iterator[Item]:
        if not self.wish.deprecated:
            return
        keys = {f"{reference}/manifest.json": reference for reference in reached.manifests}
        markers = self._objects.stats(marker_of(reference) for reference in reached.manifests)
        for key, found in self._objects.stats(keys).items():
            reference = keys[key]
            if found is None or markers[marker_of(reference)] is None:
                continue
            if reference in reached.unreached:
                yield Item("manifest", key, found.bytes, found.generation, "is deprecated, and nothing live reaches it")
            else:
                why = f"is deprecated, but {reached.holders[reference]}"
                yield Item("manifest", key, found.bytes, found.generation, why, "kept")

    def _lapsed(self, kind: str, folder: str, before: float, why: str) -> Iterator[Item]:
        for key, found in self._objects.stats(list(self._objects.list(folder))).items():
            if found is not None and found.modified < before:
                yield Item(kind, key, found.bytes, found.generation, why)


def store_time(objects: ObjectStore) -> float:
    """What the store's own clock says, read from a record written for it."""
    key = f"{CLOCK}/{uuid.uuid4().hex}.json"
    create_record(objects, key, {})
    found = objects.stat(key)
    remove_record(objects, key)
    return found.modified if found else 0.0


def _unreached(item: Item, reached: Reach) -> bool:
    if item.kind == "blob":
        return item.key not in reached.blobs
    return any(item.key == f"{reference}/manifest.json" for reference in reached.unreached)


def _leftovers(root: Path, before: float) -> Iterator[Item]:
    """Files and workspaces in a local store's `tmp` that no process works on any more."""
    for path in sorted((root / "tmp").iterdir()):
        if path == root / LOCK or in_use(path):
            continue
        try:
            inside = [each.lstat() for each in (path, *path.rglob("*"))]
        except FileNotFoundError:
            continue
        if max(each.st_mtime for each in inside) < before:
            size = sum(each.st_size for each in inside if stat.S_ISREG(each.st_mode))
            yield Item("temporary", f"tmp/{path.name}", size, "", "its writer was killed")


def _batches(items: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(items)
    while batch := list(itertools.islice(iterator, _BATCH)):
        yield batch
