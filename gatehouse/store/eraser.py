"""Executes a request to erase: plans what is removed and marked, records it, removes the data, and checks again.

The record is written before anything is deleted. So another eraser can finish the work of a killed one, and a writer of
the same content sees the record (see `Erasures.recheck`).
"""

import hashlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.store.erasure import RECORDS, Erasure, Erasures, dependant_marker, erased_marker, is_record, remove_blob
from gatehouse.store.manifest import FileEntry, Manifest
from gatehouse.store.pages import pages_of
from gatehouse.store.publishing import quarantined
from gatehouse.store.reachability import Manifests, lineage_of
from gatehouse.store.records import author, create_record, read_records, remove_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore

FORMAT = "gatehouse/erasure/1"
LOGS = "logs"
_QUOTES = ("result", "message")
_OF_ROWS = ("state", "tables", "warnings")
"""The fields of a record of a delivery that tell of its rows: digests, first and last times, warnings of guards."""
_CONFIGURATION = "config"
_EMPTY = frozenset(hashlib.sha256(content).hexdigest() for content in (b"", b"[]", b"{}", b"null"))
"""Digests of files that hold nothing, such as `anomalies.json` of rows without an anomaly."""


@dataclass(frozen=True)
class ErasurePlan:
    """The effects of a request: the artifacts that are `erased`, and the removed `blobs` (by key, bytes and artifacts).

    `dependants` stay readable and are marked as not reproducible. In `holders` the data, or data derived from it, could
    still be read.
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

    By default everything that holds the data is erased: the artifact, what it was made from, what was derived from it,
    and artifacts that share a file with one of these. With `only`, the artifact alone is erased; with `keep_inputs`,
    what it was made from stays, as it may hold other data too. Raises MissingArtifactError if the store does not hold
    `reference`; CorruptArtifactError if a manifest cannot be read, because the blobs that it lists are unknown.
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
    """Record, mark, remove, and check again. Raises ConfigurationError without a reason, or if nothing is left."""
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
            {"key": key, "sha256": key.rsplit("/", 1)[1][:64], "bytes": size, "artifacts": list(map(str, listing))}
            for key, (size, listing) in plan.blobs.items()
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
        keys = [page for artifact in sorted(erased) for page in pages_of(store, artifact)]
        keys += [key for blob in erasure.blobs for key in (blob, *quarantined(objects, blob))]
        removed += sum(remove_blob(objects, key) for key in keys)
        present = manifests.read_all()
        late = {
            str(artifact)
            for artifact, manifest in present.items()
            if any(entry.blob in erasure.blobs for entry in manifest.files)
        }
        erased = late | erasure.artifacts
        dependants = set(map(str, _Lineage(present).descendants(map(Reference.parse, erased)))) - erased
        if not _mark(store, erasure, erased, dependants) and not any(objects.stats(erasure.blobs).values()):
            break
    store.sweep()
    removed += _remove_traces(store, erased, erasure.key)
    body = author() | {"artifacts": sorted(erased), "dependants": sorted(dependants), "removed": removed}
    create_record(objects, f"{erasure.key.removesuffix('.json')}.done.json", body)


def lift(store: ArtifactStore, number: int, reason: str, by: str = "") -> Erasure:
    """Let erased content be published again. Raises ConfigurationError if there is no such erasure, or no reason."""
    if not reason.strip():
        raise ConfigurationError("Lifting an erasure needs a reason: expected some words, found none. Give --reason.")
    key = f"{RECORDS}/{number:06d}.json"
    standing = {erasure.key: erasure for erasure in Erasures(store.objects).standing()}
    if key not in standing:
        numbers = ", ".join(str(int(key.rsplit("/", 1)[1].removesuffix(".json"))) for key in standing) or "none"
        raise ConfigurationError(f"{store.address} has no erasure {number} in force: expected one of: {numbers}.")
    create_record(store.objects, f"{RECORDS}/{number:06d}.lifted.json", author(by) | {"reason": reason})
    return standing[key]


def _mark(store: ArtifactStore, erasure: Erasure, erased: Iterable[str], dependants: Iterable[str]) -> int:
    """Write the markers that are missing; returns how many."""
    markers = [*map(erased_marker, sorted(erased)), *map(dependant_marker, sorted(dependants))]
    records = read_records(store.objects, markers)
    for key, body in records.items():
        if body["record"] != erasure.key and store.erasures.lifted(body["record"]):
            remove_record(store.objects, key)
            del body["record"]
    missing = [key for key in markers if "record" not in records.get(key, {})]
    return sum(create_record(store.objects, key, {"record": erasure.key}) for key in missing)


def _remove_traces(store: ArtifactStore, erased: Set[str], record: str) -> int:
    """Remove records that may quote erased artifacts; returns how many were removed or shortened.

    A memo that names one of them is deleted. If a run read or made one of them, its log is deleted; its events keep
    times, keys and requests, but neither results nor messages. The record of the delivery of an erased snapshot says
    nothing of its rows any more. The key of the erasure, `record`, is written to shortened records.
    """
    objects = store.objects

    def is_named(bodies: Mapping[str, Any]) -> bool:
        return any(str(reference) in erased for reference in references_in(bodies))

    memos = [key for key, body in read_records(objects, list(objects.list("memo"))).items() if is_named(body)]
    for key in memos:
        remove_record(objects, key)
    quoting: list[tuple[str, dict[str, Any], tuple[str, ...]]] = []
    for run in list(objects.folders("runs")):
        events = read_records(objects, list(objects.list(f"runs/{run}")))
        if is_named(events):
            (store.local_folder / LOGS / f"{run}.log").unlink(missing_ok=True)
            quoting += [(key, body, _QUOTES) for key, body in events.items()]
    deliveries = read_records(objects, list(objects.list("sources")))
    quoting += [(key, body, _OF_ROWS) for key, body in deliveries.items() if body["snapshot"] in erased]
    shortened = 0
    for key, body, names in quoting:
        if body.keys() & set(names):
            remove_record(objects, key)
            rest = {name: value for name, value in body.items() if name not in names}
            shortened += create_record(objects, key, rest | {"erased": record})
    return len(memos) + shortened


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

    def ancestors(self, artifact: Reference) -> set[Reference]:
        """All artifacts that this one was derived from."""
        return _reached(self._parents, [artifact])

    def descendants(self, artifacts: Iterable[Reference]) -> set[Reference]:
        """All artifacts derived from one of these."""
        return _reached(self._children, artifacts)


def _reached(edges: Mapping[Reference, set[Reference]], start: Iterable[Reference]) -> set[Reference]:
    reached: set[Reference] = set()
    pending = list(start)
    while pending:
        new = edges.get(pending.pop(), set()) - reached
        reached |= new
        pending.extend(new)
    return reached
