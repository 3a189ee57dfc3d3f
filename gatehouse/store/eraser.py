"""Executes a request to erase: plans what is removed and marked, records it, removes the data, and checks again.

The record is written before anything is deleted. So another eraser can finish the work of a killed one, and a writer of
the same content sees the record (see `Erasures.recheck`).
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gatehouse.errors import ConfigurationError
from gatehouse.store.erasure import RECORDS, Erasure, Erasures, dependant_marker, erased_marker, is_record, remove_blob
from gatehouse.store.manifest import FileEntry, Manifest
from gatehouse.store.pages import pages_of
from gatehouse.store.quarantine import aside_of
from gatehouse.store.reachability import Manifests, lineage_of
from gatehouse.store.records import author, create_record, read_records, remove_record
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore
from gatehouse.store.traces import remove_traces

FORMAT = "gatehouse/erasure/1"
_CONFIGURATION = "config"
_EMPTY = frozenset(hashlib.sha256(content).hexdigest() for content in (b"", b"[]", b"{}", b"null"))
"""Digests of files that hold nothing, such as `anomalies.json` of rows without an anomaly."""


@dataclass(frozen=True)
class ErasurePlan:
    """The effects of a request.

    Attributes:
        reference: The artifact of the request.
        erased: Artifacts that cannot be read afterwards.
        blobs: Removed blobs: by key, the bytes and the artifacts that list it.
        dependants: Artifacts that stay readable and are marked as not reproducible.
        holders: All artifacts in which the data, or data derived from it, could still be read.
    """

    reference: Reference
    erased: tuple[Reference, ...]
    blobs: dict[str, tuple[int, tuple[Reference, ...]]]
    dependants: tuple[Reference, ...]
    holders: tuple[Reference, ...]


def plan_erasure(
    store: ArtifactStore, reference: Reference | str, only: bool = False, keep_inputs: bool = False
) -> ErasurePlan:
    """The effects of a request. Changes nothing.

    Args:
        store: The artifact store.
        reference: The artifact of the request.
        only: Erase this artifact alone. By default everything that holds its data is erased too: what it was made from,
            what was derived from it, and artifacts that share a file with one of these.
        keep_inputs: Leave what it was made from, which may hold other data too.

    Raises:
        MissingArtifactError: if the store does not hold `reference`.
        CorruptArtifactError: if a manifest cannot be read, because the blobs that it lists are unknown.
    """
    reference = Reference.parse(reference)
    store.manifest(reference)
    lineage = _Lineage(Manifests(store).read_all())
    gone = {artifact for artifact in lineage.present if store.erasures.of(artifact) is not None}
    inputs = lineage.ancestors(reference)
    whole = lineage.holding({reference} | inputs)
    erased = {reference} if only else lineage.holding({reference}) if keep_inputs else whole
    listed = {entry.blob: entry.bytes for artifact in erased for entry in lineage.files(artifact)}
    blobs = {key: size for key, size in listed.items() if not lineage.lists[key] - erased - gone}
    stored = store.objects.stats(blobs)
    return ErasurePlan(
        reference=reference,
        erased=tuple(sorted(erased - gone)),
        blobs={
            key: (blobs[key], tuple(sorted(lineage.lists[key]))) for key in sorted(blobs) if stored[key] is not None
        },
        dependants=tuple(sorted(lineage.descendants(erased) - erased - gone)),
        holders=tuple(sorted((whole if only else inputs if keep_inputs else set()) - erased - gone)),
    )


def unlisted_blobs(store: ArtifactStore) -> list[str]:
    """The keys of all blobs that no manifest lists: left by killed writers, or in use by pods of a job."""
    listed = {entry.blob for manifest in Manifests(store).read_all().values() for entry in manifest.files}
    return [key for key in store.objects.list("blobs") if key not in listed]


def erase(store: ArtifactStore, plan: ErasurePlan, reason: str, by: str = "") -> Erasure:
    """Record the request, mark, remove, and check again for artifacts published in the meantime.

    Raises:
        ConfigurationError: if there is no reason, or nothing is left to erase.
    """
    if not reason.strip():
        raise ConfigurationError("An erasure needs a reason: expected some words, found none. Give --reason.")
    if not plan.blobs and not plan.erased:
        raise ConfigurationError(f"{plan.reference}: nothing is left to erase.")
    body = author(by) | {
        "format": FORMAT,
        "requested": str(plan.reference),
        "reason": reason,
        "artifacts": [str(artifact) for artifact in plan.erased],
        "dependants": [str(artifact) for artifact in plan.dependants],
        "blobs": [
            {
                "key": key,
                "sha256": key.rsplit("/", 1)[1][:64],
                "bytes": size,
                "artifacts": [str(artifact) for artifact in of],
            }
            for key, (size, of) in plan.blobs.items()
        ],
    }
    number = sum(1 for key in store.objects.list(RECORDS) if is_record(key)) + 1
    while not create_record(store.objects, f"{RECORDS}/{number:06d}.json", body):
        number += 1
    erasure = Erasure.from_record(f"{RECORDS}/{number:06d}.json", body)
    finish(store, erasure)
    return erasure


def finish(store: ArtifactStore, erasure: Erasure) -> None:
    """Execute a record, also after a killed eraser has done part of it, until nothing is left to do."""
    objects, manifests, erased = store.objects, Manifests(store), set(erasure.artifacts)
    _mark(store, erasure, erasure.artifacts, erasure.dependants)
    removed = 0
    while True:
        # Pages are drawn from the data, and show parts of it.
        keys = [page for each in sorted(erased) for page in pages_of(store, each)]
        keys += [each for blob in erasure.blobs for each in (blob, *aside_of(objects, blob))]
        removed += sum(remove_blob(objects, key) for key in keys)
        present = manifests.read_all()
        late = {each for each, manifest in present.items() if erasure.blobs.keys() & {e.blob for e in manifest.files}}
        erased = {str(each) for each in late} | erasure.artifacts
        made = _Lineage(present).descendants(map(Reference.parse, erased))
        dependants = {str(each) for each in made} - erased
        if not _mark(store, erasure, erased, dependants) and not any(objects.stats(erasure.blobs).values()):
            break
    store.sweep()
    removed += remove_traces(store, erased, erasure.key)
    body = author() | {"artifacts": sorted(erased), "dependants": sorted(dependants), "removed": removed}
    create_record(objects, f"{erasure.key.removesuffix('.json')}.done.json", body)


def lift(store: ArtifactStore, number: int, reason: str, by: str = "") -> Erasure:
    """Allow the content that an erasure removed to be published again. What was removed stays removed.

    Raises:
        ConfigurationError: if there is no such active erasure, or no reason.
    """
    if not reason.strip():
        raise ConfigurationError("Lifting an erasure needs a reason: expected some words, found none. Give --reason.")
    key = f"{RECORDS}/{number:06d}.json"
    standing = {each.key: each for each in Erasures(store.objects).standing()}
    if key not in standing:
        known = ", ".join(str(int(each.rsplit("/", 1)[1].removesuffix(".json"))) for each in standing) or "none"
        raise ConfigurationError(f"{store.address} has no erasure {number} in force: expected one of: {known}.")
    create_record(store.objects, f"{RECORDS}/{number:06d}.lifted.json", author(by) | {"reason": reason})
    return standing[key]


def _mark(store: ArtifactStore, erasure: Erasure, erased: Iterable[str], dependants: Iterable[str]) -> int:
    """Write the markers that are missing; returns how many."""
    markers = [erased_marker(each) for each in sorted(erased)] + [dependant_marker(each) for each in sorted(dependants)]
    held = read_records(store.objects, markers)
    for key, body in held.items():
        if body["record"] != erasure.key and store.erasures.lifted(body["record"]):
            remove_record(store.objects, key)
            del body["record"]
    missing = [key for key in markers if "record" not in held.get(key, {})]
    return sum(create_record(store.objects, key, {"record": erasure.key}) for key in missing)


class _Lineage:
    """Which artifacts were derived from which, and which artifacts list a blob."""

    def __init__(self, present: dict[Reference, Manifest]) -> None:
        self.present = present
        self.lists: dict[str, set[Reference]] = {}
        self._parents: dict[Reference, set[Reference]] = {}
        self._children: dict[Reference, set[Reference]] = {}
        for reference, manifest in present.items():
            for entry in manifest.files:
                self.lists.setdefault(entry.blob, set()).add(reference)
            # A project's description holds no rows.
            parents = {parent for parent in lineage_of(manifest) if parent.kind != _CONFIGURATION}
            self._parents[reference] = parents & present.keys()
            for parent in parents:
                self._children.setdefault(parent, set()).add(reference)

    def files(self, artifact: Reference) -> list[FileEntry]:
        """The files of an artifact that may hold data: an empty file is the same for other data, and stays."""
        return [entry for entry in self.present[artifact].files if entry.rows != 0 and entry.sha256 not in _EMPTY]

    def holding(self, start: set[Reference]) -> set[Reference]:
        """These artifacts, what was derived from them, and what shares a file with one of these, repeatedly."""
        holding = set(start)
        while True:
            files = [entry.blob for artifact in holding for entry in self.files(artifact)]
            more = self.descendants(holding).union(*(self.lists[blob] for blob in files))
            if more <= holding:
                return holding
            holding |= more

    def ancestors(self, of: Reference) -> set[Reference]:
        """All artifacts that `of` was derived from."""
        return _reached(self._parents, [of])

    def descendants(self, of: Iterable[Reference]) -> set[Reference]:
        """All artifacts derived from one of them."""
        return _reached(self._children, of)


def _reached(edges: Mapping[Reference, set[Reference]], start: Iterable[Reference]) -> set[Reference]:
    reached: set[Reference] = set()
    pending = list(start)
    while pending:
        new = edges.get(pending.pop(), set()) - reached
        reached |= new
        pending.extend(new)
    return reached
