"""Roots: what keeps artifacts and blobs alive, read from the store and nowhere else."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from gatehouse.components.artifacts.deprecation import marker_of
from gatehouse.components.artifacts.erasure import Erasures
from gatehouse.components.artifacts.manifest import Manifest
from gatehouse.components.artifacts.records import read_records
from gatehouse.components.artifacts.reference import Reference, references_in
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import MissingArtifactError

LEDGER = "registry"
WORK = ("memo", "runs")
_READERS = 16


class Manifests:
    """The manifests of a store, each read and verified once: a manifest never changes."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._known: dict[Reference, Manifest] = {}

    def read(self) -> dict[Reference, Manifest]:
        """All manifests that the store holds now.

        Raises:
            CorruptArtifactError: if one was altered. What it names is unknown then, so nothing may be deleted.
        """
        present = list(self._store.references())
        new = [reference for reference in present if reference not in self._known]
        with ThreadPoolExecutor(_READERS) as readers:
            for reference, manifest in zip(new, readers.map(self._one, new), strict=True):
                if manifest is not None:
                    self._known[reference] = manifest
        return {reference: self._known[reference] for reference in present if reference in self._known}

    def _one(self, reference: Reference) -> Manifest | None:
        try:
            return self._store.manifest(reference)
        except MissingArtifactError:
            return None


@dataclass(frozen=True)
class Reach:
    """What is alive at one moment: manifests with what reaches each, and the blobs that they list.

    `holders` names what keeps a manifest; `unreached` are the deprecated manifests that nothing keeps; `banned` are
    erased blobs, which no manifest keeps.
    """

    manifests: dict[Reference, Manifest]
    holders: dict[Reference, str]
    unreached: frozenset[Reference] = frozenset()
    banned: frozenset[str] = frozenset()
    blobs: frozenset[str] = field(default=frozenset(), repr=False)


def reach(store: ArtifactStore, manifests: Manifests, *, deprecated: bool, forget: bool) -> Reach:
    """Read the roots.

    Args:
        store: The store.
        manifests: Those read before are not read again.
        deprecated: Let go of deprecated manifests that nothing live reaches; else every manifest is a root.
        forget: Do not count memos and run records as live.

    Raises:
        CorruptArtifactError: if a manifest or record cannot be read.
    """
    present = manifests.read()
    holders = dict.fromkeys(present, "is in use")
    if deprecated:
        holders = _held(present, _deprecated(store, present), _named(store, forget))
    standing = Erasures(store.objects).standing()
    banned = frozenset(key for erasure in standing for key in erasure.blobs)
    erased = frozenset(reference for erasure in standing for reference in erasure.artifacts)
    readable = [present[reference] for reference in holders if str(reference) not in erased]
    blobs = frozenset(entry.blob for manifest in readable for entry in manifest.files)
    return Reach(present, holders, frozenset(present) - holders.keys(), banned, blobs - banned)


def _deprecated(store: ArtifactStore, present: Iterable[Reference]) -> frozenset[Reference]:
    markers = {marker_of(reference): reference for reference in present}
    return frozenset(markers[key] for key, found in store.objects.stats(markers).items() if found is not None)


def _held(
    present: dict[Reference, Manifest], deprecated: frozenset[Reference], named: dict[Reference, str]
) -> dict[Reference, str]:
    holders = {reference: "is in use" for reference in present if reference not in deprecated}
    holders |= {reference: by for reference, by in named.items() if reference in deprecated and reference in present}
    pending = list(holders)
    while pending:
        current = pending.pop()
        for parent in lineage_of(present[current]):
            if parent in present and parent not in holders:
                holders[parent] = f"{current.short} was made from it"
                pending.append(parent)
    return holders


def lineage_of(manifest: Manifest) -> Iterator[Reference]:
    """Every reference that a manifest names: what it was derived from, and what its configuration mentions."""
    yield from references_in([manifest.derived_from, manifest.configuration, manifest.details])


def _named(store: ArtifactStore, forget: bool) -> dict[Reference, str]:
    """References that records name, with the record."""
    named: dict[Reference, str] = {}
    for folder in (LEDGER,) if forget else (LEDGER, *WORK):
        keys = (key for key in store.objects.list(folder) if key.endswith(".json"))
        for key, body in read_records(store.objects, keys).items():
            for reference in references_in(body):
                named.setdefault(reference, f"{key} names it")
    return named
