"""Executes a request to erase: plans what is removed and marked, records it, removes the data, and checks again.

The record is written before anything is deleted. So another eraser can finish the work of a killed one, and a writer of
the same content sees the record (see `Erasures.recheck`).
"""

import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

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
_EMPTY = frozenset(hashlib.sha256(each).hexdigest() for each in (b"", b"[]", b"{}", b"null"))
"""Digests of files that hold nothing, as `anomalies.json` of rows without an anomaly."""


@dataclass(frozen=True)
class Scope:
    """How far a request goes beyond the artifact itself.

    Attributes:
        inputs: Also the artifacts it was made from: the tables of a snapshot, and the rows that were set aside.
            Artifacts that were also used for others are erased only with `shared`.
        dependants: Also artifacts derived from what is erased: feature tables, training sets, splits, models.
        shared: Also blobs that artifacts outside the request list. These artifacts are then erased too, and with
            `dependants` also those derived from them.
    """

    inputs: bool = False
    dependants: bool = False
    shared: bool = False


@dataclass(frozen=True)
class ErasurePlan:
    """The effects of a request.

    Attributes:
        reference: The artifact of the request.
        scope: How far the request goes.
        erased: Artifacts that cannot be read afterwards.
        sharers: Erased artifacts that the request does not name, but that list a removed blob.
        blobs: Removed blobs: by key, the bytes and the artifacts that list it.
        kept: Blobs that are not removed because artifacts outside the request list them: by key, these artifacts.
        dependants: Artifacts that stay readable and are marked as not reproducible.
        inputs: Inputs of the request's artifact that stay readable.
        to_add: Names of the scope's fields that would have to be set so that nothing holds the data afterwards.
    """

    reference: Reference
    scope: Scope
    erased: tuple[Reference, ...]
    sharers: tuple[Reference, ...]
    blobs: dict[str, tuple[int, tuple[Reference, ...]]]
    kept: dict[str, tuple[Reference, ...]]
    dependants: tuple[Reference, ...]
    inputs: tuple[Reference, ...]
    to_add: tuple[str, ...]

    @property
    def holders(self) -> tuple[Reference, ...]:
        """All artifacts in which the data, or data derived from it, could still be read."""
        sharing = {each for of in self.kept.values() for each in of}
        return tuple(sorted(sharing.union(self.dependants, self.inputs)))


def plan_erasure(store: ArtifactStore, reference: Reference | str, scope: Scope) -> ErasurePlan:
    """The effects of a request. Changes nothing.

    Raises:
        MissingArtifactError: if the store does not hold `reference`.
        CorruptArtifactError: if a manifest cannot be read, because the blobs that it lists are unknown.
    """
    reference = Reference.parse(reference)
    store.manifest(reference)
    lineage = _Lineage(Manifests(store).read_all())
    gone = {each for each in lineage.present if store.erasures.of(each) is not None}
    plan = _planned(lineage, gone, reference, scope)
    held = store.objects.stats(plan.blobs)
    wider = (_planned(lineage, gone, reference, each) for each in _wider(scope))
    enough = next(each.scope for each in wider if not each.holders)
    return replace(
        plan,
        blobs={key: plan.blobs[key] for key in sorted(plan.blobs) if held[key] is not None},
        to_add=tuple(name for name, chosen in vars(enough).items() if chosen and not getattr(scope, name)),
    )


def _wider(scope: Scope) -> list[Scope]:
    """All scopes that go at least as far, those with the fewest additions first."""
    every = [Scope(*chosen) for chosen in itertools.product((False, True), repeat=len(vars(scope)))]
    wider = [each for each in every if all(getattr(each, name) for name, chosen in vars(scope).items() if chosen)]
    return sorted(wider, key=lambda each: sum(vars(each).values()))


def _holds(entry: FileEntry) -> bool:
    """Whether a file may hold anything of the data: what is empty is the same for other data, and stays."""
    return entry.rows != 0 and entry.sha256 not in _EMPTY


def _planned(lineage: "_Lineage", gone: set[Reference], reference: Reference, scope: Scope) -> ErasurePlan:
    erased, sharers = {reference}, set[Reference]()
    if scope.inputs:
        erased |= lineage.inputs(reference, needed_elsewhere=scope.shared)
    while True:
        if scope.dependants:
            erased |= lineage.descendants(erased | sharers)
        wanted = {entry.blob: entry.bytes for each in erased for entry in lineage.present[each].files if _holds(entry)}
        outside = {key: lineage.lists[key] - erased - gone for key in wanted}
        found = set[Reference]().union(*outside.values()) if scope.shared else set[Reference]()
        if found <= sharers:
            break
        sharers |= found
    sharers -= erased
    whole = erased | sharers
    removed = {key: size for key, size in wanted.items() if scope.shared or not outside[key]}
    return ErasurePlan(
        reference=reference,
        scope=scope,
        erased=tuple(sorted(whole - gone)),
        sharers=tuple(sorted(sharers)),
        blobs={key: (size, tuple(sorted(lineage.lists[key]))) for key, size in removed.items()},
        kept={key: tuple(sorted(outside[key])) for key in sorted(wanted.keys() - removed.keys())},
        dependants=tuple(sorted(lineage.descendants(whole) - whole - gone)),
        inputs=tuple(sorted(lineage.ancestors(reference) - whole - gone)),
        to_add=(),
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
        "artifacts": [str(each) for each in plan.erased],
        "dependants": [str(each) for each in plan.dependants],
        "blobs": [
            {"key": key, "sha256": key.rsplit("/", 1)[1][:64], "bytes": size, "artifacts": [str(each) for each in of]}
            for key, (size, of) in plan.blobs.items()
        ],
        "inputs": [str(each) for each in plan.inputs],
        "kept": {key: [str(each) for each in of] for key, of in plan.kept.items()},
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
            self._parents[reference] = {each for each in lineage_of(manifest) if each.kind != _CONFIGURATION}
            for parent in self._parents[reference]:
                self._children.setdefault(parent, set()).add(reference)

    def ancestors(self, of: Reference) -> set[Reference]:
        """All artifacts in this store that `of` was derived from."""
        return _reached({each: found & self.present.keys() for each, found in self._parents.items()}, [of])

    def descendants(self, of: Iterable[Reference]) -> set[Reference]:
        """All artifacts derived from one of them."""
        return _reached(self._children, of)

    def inputs(self, of: Reference, needed_elsewhere: bool) -> set[Reference]:
        """The inputs of `of`, without those that unrelated artifacts were also derived from."""
        inputs = self.ancestors(of)
        own = {of} | self.descendants({of})
        while not needed_elsewhere:
            needed = {each for each in inputs if not self._children[each] <= inputs | own}
            if not needed:
                break
            inputs -= needed
        return inputs


def _reached(edges: Mapping[Reference, set[Reference]], start: Iterable[Reference]) -> set[Reference]:
    found: set[Reference] = set()
    pending = list(start)
    while pending:
        new = edges.get(pending.pop(), set()) - found
        found |= new
        pending.extend(new)
    return found
