"""Garbage collection by age: deletes what no manifest and no record reaches, once it is old.

`gatehouse.store.age` says the rule that writers and readers keep, and why it is safe. Everything is read from the
store: manifests, ledgers, deprecations and erasures.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from graphlib import TopologicalSorter

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.age import DAY, DAYS, PIECES, store_time
from gatehouse.store.deprecation import marker_of
from gatehouse.store.erasure import erased_artifacts
from gatehouse.store.manifest import Manifest, read_manifest
from gatehouse.store.objects.base import Stat, side_by_side
from gatehouse.store.objects.local import LOCK
from gatehouse.store.publishing import QUARANTINE
from gatehouse.store.records import read_records, remove_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import WORKSPACE, ArtifactStore

_LEDGERS = "registry"
_QUARANTINED_DAYS = 30.0
_BROKEN = "a broken manifest may need it"


@dataclass(frozen=True)
class Item:
    """An object that nothing reaches, or a deprecated artifact that something reaches, with the reason `why`.

    `kind` is blob, manifest, piece, page, quarantined or temporary. `state` is found (may be deleted), young, deleted,
    kept, or broken (a manifest that is missing or cannot be read). `age` is in seconds since it was written or touched.
    """

    kind: str
    key: str
    bytes: int
    age: float
    why: str
    state: str


def collect(store: ArtifactStore, *, days: float = DAYS, deprecated: bool = False, dry_run: bool = False) -> list[Item]:
    """Delete what nothing reaches and is older than `days`; with `dry_run`, only list it.

    While a manifest is missing or cannot be read, it may need anything, so no artifact and no blob is deleted. A dry
    run measures ages by this machine's clock, because reading the store's clock takes a write.

    Args:
        store: The store.
        days: Age in days, by the store's clock, from which an object may go; 0 only if nothing else uses the store.
        deprecated: Whether to delete deprecated artifacts too. One stays while an artifact in use was made from it, or
            a ledger names it. Memos and run records do not keep it: a memo without its artifact is a miss.
        dry_run: Whether to change nothing.

    Raises:
        CorruptArtifactError: if a record cannot be read.
    """
    objects, items = store.objects, list[Item]()
    now = time.time() if dry_run else store_time(objects)

    def goes(kind: str, key: str, stat: Stat, why: str, kept: str = "", days: float = days) -> bool:
        """Add an item for an object, and delete it if it may go; returns whether it goes."""
        age = now - stat.modified
        state = "kept" if kept else "young" if age < days * DAY else "found"
        if state == "found" and not dry_run:
            state = "deleted" if objects.delete(key, stat.generation) else "kept"
            kept = "" if state == "deleted" else "it was touched or deleted meanwhile"
        items.append(Item(kind, key, stat.bytes, age, f"{why}, but {kept}" if kept else why, state))
        return state in ("found", "deleted")

    present, broken = read_manifests(store)
    inputs = {reference: lineage_of(manifest) for reference, manifest in present.items()}
    for child, manifest in present.items():
        for parent in set(map(Reference.parse, manifest.derived_from.values())) - present.keys() - broken.keys():
            if parent.kind == PIECES:
                continue  # It was collected, as it is older than what was made from it.
            broken[parent] = f"{parent} is missing, and {child} was made from it. Restore the store from a copy."
    items += [Item("manifest", f"{key}/manifest.json", 0, 0.0, why, "broken") for key, why in broken.items()]
    stays = _BROKEN if broken else ""

    staying = set(present)
    pieces = {f"{reference}/manifest.json": reference for reference in present if reference.kind == PIECES}
    for key, old in _existing(store, pieces).items():
        if goes("piece", key, old, "its stage has ended", stays):
            staying.remove(pieces[key])
    if deprecated:
        markers = _existing(store, map(marker_of, present))
        manifests = _existing(store, (f"{reference}/manifest.json" for reference in present))
        holders = dict(_named_by_ledgers(store))
        order = TopologicalSorter({reference: staying.intersection(inputs[reference]) for reference in staying})
        for reference in reversed(tuple(order.static_order())):  # Each artifact comes before those it was made from.
            key, marker = f"{reference}/manifest.json", markers.get(marker_of(reference))
            if marker is not None and (stat := manifests.get(key)) is not None:
                stat = replace(stat, modified=max(stat.modified, marker.modified))
                if goes("manifest", key, stat, "is deprecated", stays or holders.get(reference, "")):
                    staying.remove(reference)
                    if not dry_run:  # The mark of an erasure stays, and so does what a writer published meanwhile.
                        remove_record(objects, marker_of(reference))
                    continue
            holders |= dict.fromkeys(inputs[reference], f"{reference.short} was made from it")

    erased = erased_artifacts(objects)
    needed = {entry.blob for reference in staying if str(reference) not in erased for entry in present[reference].files}
    for key, stat in _existing(store, (key for key in objects.list("blobs") if key not in needed)).items():
        goes("blob", key, stat, "nothing reaches it", stays)
    pages = {key: references_in("/".join(key.split("/")[1:4])) for key in objects.list("reports")}
    for key, stat in _existing(store, (key for key, of in pages.items() if not staying.issuperset(of))).items():
        goes("page", key, stat, "its artifact is gone", stays)
    for key, stat in _existing(store, objects.list(QUARANTINE)).items():
        goes("quarantined", key, stat, "it was damaged, and put aside", days=max(days, _QUARANTINED_DAYS))
    files = (key for key in objects.list("tmp") if key != LOCK and not key.startswith(f"tmp/{WORKSPACE}"))
    for key, stat in _existing(store, files).items():
        goes("temporary", key, stat, "its writer was killed")
    if not dry_run:
        store.sweep()
    return items


def read_manifests(store: ArtifactStore) -> tuple[dict[Reference, Manifest], dict[Reference, str]]:
    """All manifests in the store, and what is wrong with those that cannot be read."""

    def load(reference: Reference) -> Manifest | str | None:
        try:
            return read_manifest(store.objects, reference)
        except MissingArtifactError:
            return None  # It was deleted since it was listed.
        except CorruptArtifactError as error:
            return str(error)

    references = list(store.references())
    loaded = dict(zip(references, side_by_side(store.objects, load, references), strict=True))
    readable = {reference: manifest for reference, manifest in loaded.items() if isinstance(manifest, Manifest)}
    return readable, {reference: problem for reference, problem in loaded.items() if isinstance(problem, str)}


def lineage_of(manifest: Manifest) -> tuple[Reference, ...]:
    """All references in a manifest: its inputs, its configuration, and its details."""
    return references_in([manifest.derived_from, manifest.configuration, manifest.details])


def _existing(store: ArtifactStore, keys: Iterable[str]) -> dict[str, Stat]:
    return {key: stat for key, stat in store.objects.stats(list(keys)).items() if stat is not None}


def _named_by_ledgers(store: ArtifactStore) -> Iterator[tuple[Reference, str]]:
    """The artifacts that ledgers name, each with the record in words."""
    keys = [key for key in store.objects.list(_LEDGERS) if key.endswith(".json")]
    for key, body in read_records(store.objects, keys).items():
        yield from ((reference, f"{key} names it") for reference in references_in(body))
