"""Erases the data of an artifact on request: plans what is removed, records it, marks it, and removes it.

Rows that pieces hold for other pieces go first, whomever they are of. Then comes the record, then markers, and then
bytes are removed. So readers never meet an artifact that is half there, and `finish` completes the work of a killed
eraser. docs/decisions/garbage-collection.md says what an erasure cannot reach.
"""

import hashlib
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError, CorruptArtifactError
from gatehouse.store.age import PIECES
from gatehouse.store.collection import lineage_of, read_manifests
from gatehouse.store.erasure import RECORDS, erased_artifacts, erased_marker, remove_all
from gatehouse.store.manifest import Manifest
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.pages import pages_of
from gatehouse.store.publishing import quarantined
from gatehouse.store.records import author, create_record, read_records, remove_record
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore

LOGS = "logs"
_QUOTES = ("result", "message")
_OF_ROWS = ("state", "tables", "warnings")
"""The fields of a record of a delivery that tell of its rows: digests, first and last times, warnings of guards."""
_SHORTENED = "gc/shortened"
_CONFIGURATION = "config"
_EMPTY = frozenset(hashlib.sha256(content).hexdigest() for content in (b"", b"[]", b"{}", b"null"))
"""Digests of files that hold nothing, such as `anomalies.json` of rows without an anomaly."""


@dataclass(frozen=True)
class ErasurePlan:
    """The effects of a request: the artifacts that are `erased`, and the removed `blobs`, by key with their bytes.

    The artifacts in `holders` stay, and the data, or data derived from it, could still be read there.
    """

    reference: Reference
    erased: tuple[Reference, ...]
    blobs: dict[str, int]
    holders: tuple[Reference, ...]


def plan_erasure(
    store: ArtifactStore, reference: Reference | str, only: bool = False, keep_inputs: bool = False
) -> ErasurePlan:
    """The effects of a request. Changes nothing.

    By default everything that holds the data is erased: the artifact, what it was made from, what was derived from
    these, and artifacts that share a file with one of them. With `only`, the artifact alone is erased; with
    `keep_inputs`, what it was made from stays, as it may hold other data too. Raises MissingArtifactError if the store
    does not hold `reference`; CorruptArtifactError if a manifest cannot be read, because its files are unknown.
    """
    reference = store.manifest(reference).reference
    present, inputs, passes_on = _all_manifests(store), dict[str, set[str]](), dict[str, set[str]]()
    for artifact, manifest in present.items():
        # A project's description holds no rows, and neither does an empty file, which other data may have too.
        parents = {str(parent) for parent in lineage_of(manifest) if parent.kind != _CONFIGURATION}
        files = {entry.blob for entry in manifest.files if entry.rows != 0 and entry.sha256 not in _EMPTY}
        inputs[str(artifact)] = parents
        for source in parents | files:
            passes_on.setdefault(source, set()).add(str(artifact))
        passes_on.setdefault(str(artifact), set()).update(files)
    whole = _reached(passes_on, _reached(inputs, {str(reference)}))
    erased = {str(reference)} if only else _reached(passes_on, {str(reference)}) if keep_inputs else whole
    gone = erased_artifacts(store.objects)
    stats = store.objects.stats(sorted(_blobs_of_none_but(erased | gone, present)))
    return ErasurePlan(
        reference=reference,
        erased=tuple(artifact for artifact in present if str(artifact) in erased - gone),
        blobs={key: stat.bytes for key, stat in stats.items() if stat is not None},
        holders=tuple(artifact for artifact in present if str(artifact) in whole - erased - gone),
    )


def erase(store: ArtifactStore, plan: ErasurePlan, reason: str, by: str = "") -> str:
    """Record, mark and remove; returns the key of the record.

    Raises ConfigurationError without a reason, or if nothing is left to erase.
    """
    if not reason.strip():
        raise ConfigurationError("An erasure needs a reason: expected some words, found none. Give --reason.")
    if not plan.erased:
        raise ConfigurationError(f"{plan.reference}: nothing is left to erase.")
    _remove_rows_of_pieces(store)
    artifacts = {"artifacts": list(map(str, plan.erased)), "holders": list(map(str, plan.holders))}
    body = author(by) | {"requested": str(plan.reference), "reason": reason} | artifacts
    number = store.append(RECORDS, body)
    finish(store)
    return f"{RECORDS}/{number:06d}.json"


def finish(store: ArtifactStore) -> int:
    """Carry out every recorded erasure, also that of a killed eraser; returns how many objects were removed."""
    objects, removed = store.objects, 0
    for key, body in read_records(objects, objects.list(_SHORTENED)).items():
        _put_back(objects, key, body)
    for key, body in read_records(objects, objects.list(RECORDS)).items():
        marker = {name: body[name] for name in ("by", "at", "reason")} | {"record": key}
        for artifact in body["artifacts"]:
            create_record(objects, erased_marker(Reference.parse(artifact)), marker)
    erased = erased_artifacts(objects)
    # A manifest that was published meanwhile may list a blob. So this is found out last.
    for key in sorted(_blobs_of_none_but(erased, _all_manifests(store))):
        removed += sum(remove_all(objects, copy) for copy in (key, *quarantined(objects, key)))
    # Pages are drawn from the data, and show parts of it.
    removed += sum(remove_all(objects, page) for artifact in sorted(erased) for page in pages_of(store, artifact))
    store.sweep()
    return removed + _remove_traces(store, erased)


def _remove_rows_of_pieces(store: ArtifactStore) -> None:
    """Remove the rows that pieces read from sources, or gathered for others, and the memos that name them.

    No lineage leads to them, so nobody knows which of them hold the data. They are made again where they are needed.
    """
    objects, present = store.objects, _all_manifests(store)
    rows = {str(artifact) for artifact, made in present.items() if artifact.kind == PIECES and not lineage_of(made)}
    blobs = _blobs_of_none_but(rows, present)
    # Manifests go last: by them the repeat of an eraser that was killed finds the rest.
    for key, body in read_records(objects, list(objects.list("memo"))).items():
        if any(str(reference) in rows for reference in references_in(body)):
            remove_record(objects, key)
    for key in sorted(blobs):
        for copy in (key, *quarantined(objects, key)):
            remove_all(objects, copy)
    for artifact in sorted(rows):
        remove_all(objects, f"{artifact}/manifest.json")


def _remove_traces(store: ArtifactStore, erased: Set[str]) -> int:
    """Remove records that may quote erased artifacts; returns how many were removed or shortened.

    A memo that names one of them is deleted. If a run read or made one of them, its log is deleted; its events keep
    times, keys and requests, but neither results nor messages. The record of the delivery of an erased snapshot says
    nothing of its rows any more.
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
    quoting = [(key, body, names) for key, body, names in quoting if body.keys() & set(names)]
    for key, body, names in quoting:
        rest = {name: value for name, value in body.items() if name not in names}
        create_record(objects, f"{_SHORTENED}/{key}", rest | {"erased": True})
        remove_record(objects, key)
        _put_back(objects, f"{_SHORTENED}/{key}", rest | {"erased": True})
    return len(memos) + len(quoting)


def _put_back(objects: ObjectStore, shortened: str, body: dict[str, Any]) -> None:
    """Create a record from its shortened copy, which an eraser that was killed may have left."""
    create_record(objects, shortened.removeprefix(f"{_SHORTENED}/"), body)
    remove_record(objects, shortened)


def _all_manifests(store: ArtifactStore) -> dict[Reference, Manifest]:
    present, broken = read_manifests(store)
    for problem in broken.values():
        raise CorruptArtifactError(problem)
    return present


def _blobs_of_none_but(artifacts: Set[str], present: Mapping[Reference, Manifest]) -> set[str]:
    """The keys of the blobs that only these artifacts list."""
    listed: dict[bool, set[str]] = {True: set(), False: set()}
    for reference, manifest in present.items():
        listed[str(reference) in artifacts].update(entry.blob for entry in manifest.files)
    return listed[True] - listed[False]


def _reached(edges: Mapping[str, set[str]], start: set[str]) -> set[str]:
    """All nodes that can be reached from these, and these."""
    reached, new = set[str](), start
    while new:
        reached |= new
        new = set().union(*(edges.get(node, ()) for node in new)) - reached
    return reached
