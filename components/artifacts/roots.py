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


class Roots:
    """The roots of a store. What was read once is not read again: a manifest or a record never changes."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._manifests = Manifests(store)
        self._in_use: set[Reference] = set()
        self._names: dict[str, tuple[Reference, ...]] = {}

    def reach(self, *, deprecated: bool, forget: bool) -> Reach:
        """What is alive now.

        Args:
            deprecated: Let go of deprecated manifests that nothing live reaches; else every manifest is a root.
            forget: Do not count memos and run records as live.

        Raises:
            CorruptArtifactError: if a manifest or record cannot be read.
        """
        present = self._manifests.read()
        holders = dict.fromkeys(present, "is in use")
        if deprecated:
            holders = _held(present, self._deprecated(present), self._named(forget))
        standing = Erasures(self._store.objects).standing()
        banned = frozenset(key for erasure in standing for key in erasure.blobs)
        erased = frozenset(reference for erasure in standing for reference in erasure.artifacts)
        readable = [present[reference] for reference in holders if str(reference) not in erased]
        blobs = frozenset(entry.blob for manifest in readable for entry in manifest.files)
        return Reach(present, holders, frozenset(present) - holders.keys(), banned, blobs - banned)

    def _deprecated(self, present: Iterable[Reference]) -> frozenset[Reference]:
        """What has a marker. What had none at the first look counts as in use to the end."""
        markers = {marker_of(reference): reference for reference in present if reference not in self._in_use}
        found = self._store.objects.stats(markers)
        deprecated = frozenset(markers[key] for key, held in found.items() if held is not None)
        self._in_use.update(set(markers.values()) - deprecated)
        return deprecated

    def _named(self, forget: bool) -> dict[Reference, str]:
        """References that records name, with the record."""
        named: dict[Reference, str] = {}
        for folder in (LEDGER,) if forget else (LEDGER, *WORK):
            keys = [key for key in self._store.objects.list(folder) if key.endswith(".json")]
            new = read_records(self._store.objects, [key for key in keys if key not in self._names])
            self._names |= {key: references_in(body) for key, body in new.items()}
            for key in keys:
                for reference in self._names.get(key, ()):
                    named.setdefault(reference, f"{key} names it")
        return named


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
