"""Carries out a request to erase: plans what is removed and what is marked, records it, removes the data, looks again.

The record is written before anything is deleted. So the next eraser can finish what a killed one began, and a writer of
the same content sees the record (see `Erasures.recheck`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

from gatehouse.components.artifacts.erasure import (
    RECORDS,
    Erasure,
    Erasures,
    dependant_marker,
    erased_marker,
    is_record,
    remove_blob,
)
from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.artifacts.pages import pages_of
from gatehouse.components.artifacts.quarantine import aside_of
from gatehouse.components.artifacts.reachability import Manifests, lineage_of
from gatehouse.components.artifacts.records import author, create_record, read_records, remove_record
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError

FORMAT = "gatehouse/erasure/1"
_Children = dict[Reference, set[Reference]]


@dataclass(frozen=True)
class Scope:
    """How far a request goes beyond the artifact itself.

    Attributes:
        inputs: Also what it was made from: the tables of a snapshot, and the rows that were set aside. What other
            artifacts were made from too is erased only with `shared`.
        dependants: Also what was derived from it: feature tables, training sets, splits, models.
        shared: Also blobs that artifacts outside the request list. These artifacts are then erased too.
    """

    inputs: bool = False
    dependants: bool = False
    shared: bool = False


@dataclass(frozen=True)
class ErasurePlan:
    """What a request would do.

    Attributes:
        reference: What the request names.
        erased: Artifacts that nobody can read afterwards.
        sharers: Those among them that the request does not name, but that list a blob which it removes.
        blobs: What is removed: by key, its bytes and the artifacts that list it.
        kept: What is not removed, because artifacts outside the request list it: by key, these artifacts.
        dependants: Artifacts that stay readable, and are marked as not reproducible.
        inputs: What the erased artifacts were made from, and what is not erased.
    """

    reference: Reference
    erased: tuple[Reference, ...]
    sharers: tuple[Reference, ...]
    blobs: dict[str, tuple[int, tuple[Reference, ...]]]
    kept: dict[str, tuple[Reference, ...]]
    dependants: tuple[Reference, ...]
    inputs: tuple[Reference, ...]


def plan_erasure(store: ArtifactStore, reference: Reference | str, scope: Scope) -> ErasurePlan:
    """What a request would do. Changes nothing.

    Raises:
        MissingArtifactError: if the store does not hold `reference`.
        CorruptArtifactError: if a manifest cannot be read. Which blobs it lists is unknown then.
    """
    reference = Reference.parse(reference)
    store.manifest(reference)
    present = Manifests(store).read_all()
    children = _children(present)
    gone = {each for each in present if store.erasures.of(each) is not None}
    erased = {reference}
    if scope.inputs:
        erased |= _inputs(present, children, reference, needed_elsewhere=scope.shared)
    if scope.dependants:
        erased |= _descendants(children, erased)
    wanted = {entry.blob: entry.bytes for each in erased & present.keys() for entry in present[each].files}
    lists = _lists(present, wanted)
    outside = {key: tuple(each for each in lists[key] if each not in erased | gone) for key in wanted}
    sharers = {each for key in wanted for each in outside[key]} if scope.shared else set()
    removed = {key: (size, lists[key]) for key, size in wanted.items() if scope.shared or not outside[key]}
    held = store.objects.stats(removed)
    whole = erased | sharers
    return ErasurePlan(
        reference=reference,
        erased=tuple(sorted(whole - gone)),
        sharers=tuple(sorted(sharers)),
        blobs={key: removed[key] for key in sorted(removed) if held[key] is not None},
        kept={key: outside[key] for key in sorted(wanted.keys() - removed.keys())},
        dependants=tuple(sorted(_descendants(children, whole) - whole - gone)),
        inputs=tuple(sorted(_ancestors(present, reference) - whole - gone)),
    )


def erase(store: ArtifactStore, plan: ErasurePlan, reason: str, by: str = "") -> Erasure:
    """Record the request, mark, remove, and look again for what was published meanwhile.

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
        "artifacts": [str(each) for each in plan.erased],
        "dependants": [str(each) for each in plan.dependants],
        "blobs": [
            {"key": key, "sha256": key.rsplit("/", 1)[1][:64], "bytes": size, "artifacts": [str(each) for each in of]}
            for key, (size, of) in plan.blobs.items()
        ],
        "kept": {key: [str(each) for each in of] for key, of in plan.kept.items()},
    }
    number = sum(1 for key in store.objects.list(RECORDS) if is_record(key)) + 1
    while not create_record(store.objects, f"{RECORDS}/{number:06d}.json", body):
        number += 1
    erasure = Erasure.from_record(f"{RECORDS}/{number:06d}.json", body)
    finish(store, erasure)
    return erasure


def finish(store: ArtifactStore, erasure: Erasure) -> None:
    """Do what a record says, also where a killed eraser has done part of it. Ends when nothing is left to do."""
    objects, manifests = store.objects, Manifests(store)
    _mark(store, erasure, erasure.artifacts, erasure.dependants)
    removed = 0
    while True:
        # Pages are drawn from the data, and show some of it.
        removed += sum(remove_blob(objects, key) for key in erasure.blobs) + _remove_pages(store, erasure)
        for key in erasure.blobs:
            for aside in aside_of(objects, key):
                removed += remove_blob(objects, aside)
        present = manifests.read()
        late = {each for each, manifest in present.items() if erasure.blobs.keys() & {e.blob for e in manifest.files}}
        erased = {str(each) for each in late} | erasure.artifacts
        dependants = {str(each) for each in _descendants(_children(present), map(Reference.parse, erased))} - erased
        if not _mark(store, erasure, erased, dependants) and not any(objects.stats(erasure.blobs).values()):
            break
    body = author() | {"artifacts": sorted(erased), "dependants": sorted(dependants), "removed": removed}
    create_record(objects, f"{erasure.key.removesuffix('.json')}.done.json", body)


def lift(store: ArtifactStore, number: int, reason: str, by: str = "") -> Erasure:
    """Allow the content that an erasure removed to be published again. What was removed stays removed.

    Raises:
        ConfigurationError: if there is no such erasure that stands, or no reason.
    """
    if not reason.strip():
        raise ConfigurationError("Lifting an erasure needs a reason: expected some words, found none. Give --reason.")
    key = f"{RECORDS}/{number:06d}.json"
    standing = {each.key: each for each in Erasures(store.objects).standing()}
    if key not in standing:
        known = ", ".join(str(int(each.rsplit("/", 1)[1].removesuffix(".json"))) for each in standing) or "none"
        raise ConfigurationError(f"Erasure {number} does not stand in {store.address}: expected one of: {known}.")
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


def _remove_pages(store: ArtifactStore, erasure: Erasure) -> int:
    """Remove the pages that were drawn of what is erased; returns how many."""
    return sum(remove_blob(store.objects, key) for each in sorted(erasure.artifacts) for key in pages_of(store, each))


def _lists(present: dict[Reference, Manifest], wanted: Iterable[str]) -> dict[str, tuple[Reference, ...]]:
    found: dict[str, list[Reference]] = {key: [] for key in wanted}
    for reference, manifest in present.items():
        for key in {entry.blob for entry in manifest.files} & found.keys():
            found[key].append(reference)
    return {key: tuple(sorted(references)) for key, references in found.items()}


def _ancestors(present: dict[Reference, Manifest], of: Reference) -> set[Reference]:
    found: set[Reference] = set()
    pending = [of]
    while pending:
        new = set(lineage_of(present[pending.pop()])) & present.keys() - found
        found |= new
        pending.extend(new)
    return found


def _inputs(
    present: dict[Reference, Manifest], children: _Children, of: Reference, needed_elsewhere: bool
) -> set[Reference]:
    """What `of` was made from; without what an artifact that has nothing to do with `of` was made from, too."""
    inputs = _ancestors(present, of)
    own = {of} | _descendants(children, {of})
    while not needed_elsewhere:
        needed = {each for each in inputs if not children[each] <= inputs | own}
        if not needed:
            break
        inputs -= needed
    return inputs


def _children(present: dict[Reference, Manifest]) -> _Children:
    children: _Children = {}
    for reference, manifest in present.items():
        for parent in lineage_of(manifest):
            children.setdefault(parent, set()).add(reference)
    return children


def _descendants(children: _Children, of: Iterable[Reference]) -> set[Reference]:
    found: set[Reference] = set()
    pending = list(of)
    while pending:
        new = children.get(pending.pop(), set()) - found
        found |= new
        pending.extend(new)
    return found
