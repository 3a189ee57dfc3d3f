"""Erasure, as readers and writers meet it: records of what was erased, and the markers beside manifests.

`erasures/<n>.json` says who asked, when, why, and which blobs went; `<n>.done.json` that they are gone;
`<n>.lifted.json` that the same content may come back; `<digest>.pulled.json` is a record of another store.
`<reference>/erased.json` marks an artifact whose data was removed, and `<reference>/not-reproducible.json` one that was
derived from such an artifact. Both name the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.manifest import FileEntry, Manifest
from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.records import create_record, read_record
from gatehouse.components.artifacts.reference import Reference
from gatehouse.errors import ErasedArtifactError

RECORDS = "erasures"


@dataclass(frozen=True)
class Erasure:
    """One record: a request and what it covers."""

    key: str
    reason: str
    by: str
    at: str
    artifacts: frozenset[str]
    dependants: frozenset[str]
    blobs: dict[str, int]

    @classmethod
    def from_record(cls, key: str, body: dict[str, Any]) -> "Erasure":
        """Rebuild it from its parsed JSON; `blobs` maps keys to bytes."""
        return cls(
            key=key,
            reason=body["reason"],
            by=body["by"],
            at=body["at"],
            artifacts=frozenset(body["artifacts"]),
            dependants=frozenset(body["dependants"]),
            blobs={blob["key"]: blob["bytes"] for blob in body["blobs"]},
        )

    def explain(self, what: str) -> str:
        """One sentence for a person."""
        return f"{what} was erased on {self.at} by {self.by}: {self.reason.rstrip('.')} (record {self.key})."


def erased_marker(reference: Reference | str) -> str:
    """The key that marks an artifact as erased."""
    return f"{reference}/erased.json"


def dependant_marker(reference: Reference | str) -> str:
    """The key that marks an artifact as derived from an erased one."""
    return f"{reference}/not-reproducible.json"


class Erasures:
    """All erasures of a store that stand. Records are read once, as they never change."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._read: dict[str, Erasure] = {}

    def standing(self) -> list[Erasure]:
        """Every record that was not lifted, in order."""
        keys = set(self._objects.list(RECORDS))
        return [self._record(key) for key in sorted(keys) if is_record(key) and _beside(key, "lifted") not in keys]

    def unfinished(self) -> list[Erasure]:
        """Every standing record whose blobs may not all be gone yet: the eraser was killed, or is at work."""
        return [each for each in self.standing() if self._objects.stat(_beside(each.key, "done")) is None]

    def lifted(self, key: str) -> bool:
        """Whether the content of this record may be published again."""
        return self._objects.stat(_beside(key, "lifted")) is not None

    def of(self, reference: Reference) -> Erasure | None:
        """The erasure of `reference`, or None. One that was lifted counts until the artifact is published again."""
        body = read_record(self._objects, erased_marker(reference))
        return None if body is None else self._record(body["record"])

    def behind(self, reference: Reference) -> Erasure | None:
        """The erasure that makes `reference` not reproducible and was not lifted, or None."""
        body = read_record(self._objects, dependant_marker(reference))
        if body is None or self.lifted(body["record"]):
            return None
        return self._record(body["record"])

    def mark_as(self, other: "Erasures", reference: Reference) -> None:
        """Mark `reference` as not reproducible where another store does. Its record comes along, and bans nothing."""
        behind = other.behind(reference)
        body = None if behind is None else read_record(other._objects, behind.key)
        if body is not None:
            key = f"{RECORDS}/{digest_of(body)[:16]}.pulled.json"
            create_record(self._objects, key, body)
            create_record(self._objects, dependant_marker(reference), {"record": key})

    def require_kept(self, reference: Reference) -> None:
        """Raise ErasedArtifactError if `reference` was erased."""
        erasure = self.of(reference)
        if erasure is not None:
            raise ErasedArtifactError(erasure.explain(str(reference)))

    def refuse(self, manifest: Manifest) -> None:
        """Raise ErasedArtifactError if `manifest`, or a blob of it, was erased; a blob stored ahead goes again."""
        hit = self._covering(manifest.files, str(manifest.reference))
        if hit is not None:
            self._remove(manifest.files, hit)
            raise ErasedArtifactError(_refusal(str(manifest.reference), manifest.files, hit))

    def refuse_file(self, entry: FileEntry) -> None:
        """Raise ErasedArtifactError if the content of one file was erased."""
        hit = self._covering([entry])
        if hit is not None:
            raise ErasedArtifactError(_refusal(entry.path, [entry], hit))

    def settle(self, manifest: Manifest) -> None:
        """The last look after a commit: what was erased meanwhile goes again, and a dependant gets its mark.

        A writer puts its blobs and reads the records after; an eraser writes its record and deletes after, then looks
        for new manifests. So one of the two sees the other.

        Raises:
            ErasedArtifactError: if the manifest, or a blob of it, was erased while it was published.
        """
        marker = erased_marker(manifest.reference)
        marked = self._objects.stat(marker)
        hit = self._covering(manifest.files, str(manifest.reference))
        if hit is not None:
            create_record(self._objects, marker, {"record": hit.key})
            self._remove(manifest.files, hit)
            raise ErasedArtifactError(_refusal(str(manifest.reference), manifest.files, hit))
        if marked is not None:
            self._objects.delete(marker, marked.generation)
        parents = [Reference.parse(parent) for parent in manifest.derived_from.values()] if self._any() else []
        behind = next((found for each in parents if (found := self.of(each) or self.behind(each))), None)
        if behind is not None:
            create_record(self._objects, dependant_marker(manifest.reference), {"record": behind.key})

    def _any(self) -> bool:
        return next(iter(self._objects.list(RECORDS)), None) is not None

    def _remove(self, files: Sequence[FileEntry], erasure: Erasure) -> None:
        for key in erasure.blobs.keys() & {entry.blob for entry in files}:
            remove_blob(self._objects, key)

    def _covering(self, files: Sequence[FileEntry], reference: str = "") -> Erasure | None:
        blobs = {entry.blob for entry in files}
        standing = self.standing()
        return next((each for each in standing if reference in each.artifacts or blobs & each.blobs.keys()), None)

    def _record(self, key: str) -> Erasure:
        if key not in self._read:
            body = read_record(self._objects, key)
            if body is None:
                raise ErasedArtifactError(f"The record {key} of an erasure is gone. Restore it from a copy.")
            self._read[key] = Erasure.from_record(key, body)
        return self._read[key]


def remove_blob(objects: ObjectStore, key: str) -> bool:
    """Delete `key` in whatever generation it stands, here and in this machine's cache; False where it was gone."""
    removed = False
    objects.forget(key)
    while (found := objects.stat(key)) is not None:
        removed = objects.delete(key, found.generation) or removed
    return removed


def is_record(key: str) -> bool:
    """Whether `key` is a request to this store, and not what is written beside one or was pulled from elsewhere."""
    return key.rsplit("/", 1)[1].count(".") == 1


def _beside(key: str, word: str) -> str:
    return f"{key.removesuffix('.json')}.{word}.json"


def _refusal(name: str, files: Sequence[FileEntry], erasure: Erasure) -> str:
    blobs = [entry.path for entry in files if entry.blob in erasure.blobs]
    what = f"{name}: the content of {', '.join(blobs[:5])}" if blobs else name
    number = erasure.key.rsplit("/", 1)[1].removesuffix(".json")
    return (
        f"{erasure.explain(what)} It is not published again. Remove the rows in question from the source; where the "
        f"content may lawfully come back, `gatehouse data lift {number} --reason …` allows it."
    )
