"""Finds which artifacts and blobs are still needed, and by what. The collector deletes none of them.

Everything is read from the store: manifests, the ledger, memos, run records, deprecations and erasures.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from gatehouse.errors import CorruptArtifactError, MissingArtifactError
from gatehouse.store.deprecation import marker_of
from gatehouse.store.erasure import Erasures, dependant_marker
from gatehouse.store.manifest import Manifest
from gatehouse.store.objects.base import side_by_side
from gatehouse.store.records import read_records
from gatehouse.store.reference import Reference, references_in
from gatehouse.store.store import ArtifactStore

LEDGER = "registry"
WORK = ("memo", "runs")


class Manifests:
    """The manifests of a store. Each is read and verified once, because a manifest never changes.

    `unreadable` holds those that were altered or are invalid, at the last look. Nobody knows what they name.
    """

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._cache: dict[Reference, Manifest] = {}
        self.unreadable: dict[Reference, CorruptArtifactError] = {}

    def read(self) -> dict[Reference, Manifest]:
        """All readable manifests in the store now; the others are in `unreadable`."""

        def load(reference: Reference) -> Manifest | CorruptArtifactError | None:
            try:
                return self._store.manifest(reference)
            except MissingArtifactError:
                return None
            except CorruptArtifactError as error:
                return error

        present = list(self._store.references())
        new = [reference for reference in present if reference not in self._cache]
        self.unreadable = {}
        for reference, result in zip(new, side_by_side(self._store.objects, load, new), strict=True):
            if isinstance(result, Manifest):
                self._cache[reference] = result
            elif result is not None:
                self.unreadable[reference] = result
        return {reference: self._cache[reference] for reference in present if reference in self._cache}

    def read_all(self) -> dict[Reference, Manifest]:
        """All manifests in the store now. Raises CorruptArtifactError if one is unreadable."""
        present = self.read()
        for error in self.unreadable.values():
            raise error
        return present


@dataclass(frozen=True)
class Reachable:
    """The needed objects at one look at the store.

    `holders` says in words what needs each needed manifest; `unneeded` are the deprecated manifests that nothing needs.
    `blobs` are keys of blobs that needed manifests list, without the `erased` ones, which are never needed. `broken`
    says what is wrong with each manifest that is unreadable, or missing although a needed one was derived from it: it
    may need any blob or artifact, so as long as there is one, everything is needed.
    """

    manifests: dict[Reference, Manifest]
    holders: dict[Reference, str]
    unneeded: frozenset[Reference] = frozenset()
    erased: frozenset[str] = frozenset()
    blobs: frozenset[str] = field(default=frozenset(), repr=False)
    broken: dict[Reference, str] = field(default_factory=dict)

    @cached_property
    def _unneeded_keys(self) -> frozenset[str]:
        return frozenset(f"{reference}/manifest.json" for reference in self.unneeded)

    def needs_manifest(self, key: str) -> bool:
        """Whether the manifest at `key` is needed."""
        return bool(self.broken) or key not in self._unneeded_keys

    def needs_blob(self, key: str) -> bool:
        """Whether the blob at `key` is needed. An erased blob never is."""
        return key in self.blobs or (bool(self.broken) and key not in self.erased)


class Reachability:
    """Finds what is needed in a store, repeatedly. A manifest or record is read once, because it never changes."""

    def __init__(self, store: ArtifactStore) -> None:
        self._store = store
        self._manifests = Manifests(store)
        self._in_use: set[Reference] = set()
        self._names: dict[str, tuple[Reference, ...]] = {}

    def look(self, *, deprecated: bool, forget: bool) -> Reachable:
        """The artifacts needed now: all, or, with `deprecated`, deprecated ones only where something needs them.

        With `forget`, memos and run records do not count as a need. Raises CorruptArtifactError if a record cannot be
        read.
        """
        present = self._manifests.read()
        holders = self._holders(present, forget) if deprecated else dict.fromkeys(present, "is in use")
        standing = Erasures(self._store.objects).standing()
        erased_blobs = frozenset(key for erasure in standing for key in erasure.blobs)
        erased = frozenset(artifact for erasure in standing for artifact in erasure.artifacts)
        readable = [present[reference] for reference in holders if str(reference) not in erased]
        blobs = frozenset(entry.blob for manifest in readable for entry in manifest.files)
        broken = {reference: str(error) for reference, error in self._manifests.unreadable.items()}
        for child in holders:
            for parent in map(Reference.parse, present[child].derived_from.values()):
                if parent in present or parent in broken:
                    continue
                # An input may be missing because it was erased before the artifact was pulled into this store.
                stats = self._store.objects.stats([f"{parent}/manifest.json", dependant_marker(child)])
                if not any(stats.values()):
                    broken[parent] = (
                        f"{parent} is missing, and {child} was made from it. Restore the store from a copy."
                    )
        return Reachable(
            present, holders, frozenset(present) - holders.keys(), erased_blobs, blobs - erased_blobs, broken
        )

    def _holders(self, present: dict[Reference, Manifest], forget: bool) -> dict[Reference, str]:
        """The need for each manifest: it is in use, a record names it, or a needed artifact was derived from it."""
        # An artifact deprecated after the first look counts as in use until the collector ends.
        markers = {marker_of(reference): reference for reference in present if reference not in self._in_use}
        stats = self._store.objects.stats(markers)
        deprecated = frozenset(markers[key] for key, stat in stats.items() if stat is not None)
        self._in_use.update(set(markers.values()) - deprecated)
        holders = {reference: "is in use" for reference in present if reference not in deprecated}
        for folder in (LEDGER,) if forget else (LEDGER, *WORK):
            keys = [key for key in self._store.objects.list(folder) if key.endswith(".json")]
            new = read_records(self._store.objects, [key for key in keys if key not in self._names])
            self._names |= {key: references_in(body) for key, body in new.items()}
            for key in keys:
                for reference in deprecated & set(self._names.get(key, ())):
                    holders.setdefault(reference, f"{key} names it")
        pending = list(holders)
        while pending:
            current = pending.pop()
            for parent in lineage_of(present[current]):
                if parent in present and parent not in holders:
                    holders[parent] = f"{current.short} was made from it"
                    pending.append(parent)
        return holders


def lineage_of(manifest: Manifest) -> Iterator[Reference]:
    """All references in a manifest: its inputs, its configuration, and its details."""
    yield from references_in([manifest.derived_from, manifest.configuration, manifest.details])
