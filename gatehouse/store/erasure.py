"""Erasure for readers and writers: records of what was erased on request, and markers beside manifests.

`erasures/<n>.json` says who asked, when and why, and which blobs were removed. `<n>.done.json` says that they are gone,
`<n>.lifted.json` that the same content may be published again. `<reference>/erased.json` marks an artifact whose data
was removed, `<reference>/not-reproducible.json` an artifact derived from an erased one. Both name the record.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import CorruptArtifactError, ErasedArtifactError
from gatehouse.store.manifest import FileEntry, Manifest, is_blob_key
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import create_record, read_record
from gatehouse.store.reference import Reference, is_identity

RECORDS = "erasures"


@dataclass(frozen=True)
class Erasure:
    """One record, under `key`: who asked for an erasure, when (UTC) and why, and what it covers.

    `artifacts` are erased, `dependants` are derived from them, `blobs` maps the keys of removed blobs to their bytes.
    """

    key: str
    reason: str
    by: str
    at: str
    artifacts: frozenset[str]
    dependants: frozenset[str]
    blobs: dict[str, int]

    @classmethod
    def from_record(cls, key: str, body: dict[str, Any]) -> "Erasure":
        """The erasure that a record describes. Raises CorruptArtifactError if it names no blobs or references."""
        wrong = [blob["key"] for blob in body["blobs"] if not is_blob_key(blob["key"])]
        wrong += [artifact for artifact in (*body["artifacts"], *body["dependants"]) if not is_identity(artifact)]
        if wrong:
            raise CorruptArtifactError(
                f"{key}: expected keys of blobs and references, found {wrong[0]!r}. Restore or remove the record."
            )
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
    """The erasures of a store. Each record is read once, because it never changes."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects
        self._read: dict[str, Erasure] = {}

    def standing(self) -> list[Erasure]:
        """Every erasure that was not lifted, in order of number."""
        keys = set(self._objects.list(RECORDS))
        return [self._record(key) for key in sorted(keys) if is_record(key) and _beside(key, "lifted") not in keys]

    def unfinished(self) -> list[Erasure]:
        """Every erasure whose blobs may not all be gone yet: its eraser was killed, or is running."""
        return [erasure for erasure in self.standing() if self._objects.stat(_beside(erasure.key, "done")) is None]

    def lifted(self, key: str) -> bool:
        """Whether the content that the record `key` covers may be published again."""
        return self._objects.stat(_beside(key, "lifted")) is not None

    def of(self, reference: Reference) -> Erasure | None:
        """The erasure of `reference`, or None. A lifted one counts until the artifact is published again."""
        body = read_record(self._objects, erased_marker(reference))
        return None if body is None else self._record(body["record"])

    def behind(self, reference: Reference) -> Erasure | None:
        """The erasure because of which `reference` cannot be reproduced, or None; lifted ones do not count."""
        body = read_record(self._objects, dependant_marker(reference))
        if body is None or self.lifted(body["record"]):
            return None
        return self._record(body["record"])

    def require_kept(self, reference: Reference) -> None:
        """Raise ErasedArtifactError, which names the record, if `reference` was erased."""
        erasure = self.of(reference)
        if erasure is not None:
            raise ErasedArtifactError(erasure.explain(str(reference)))

    def refuse(self, manifest: Manifest) -> None:
        """Raise ErasedArtifactError if `manifest` or one of its blobs was erased, and remove blobs stored ahead."""
        hit = self._covering(manifest.files, str(manifest.reference))
        if hit is not None:
            self._remove(manifest.files, hit)
            raise ErasedArtifactError(_refusal(str(manifest.reference), manifest.files, hit))

    def refuse_file(self, entry: FileEntry) -> None:
        """Raise ErasedArtifactError if the content of one file was erased."""
        hit = self._covering([entry])
        if hit is not None:
            raise ErasedArtifactError(_refusal(entry.path, [entry], hit))

    def recheck(self, manifest: Manifest) -> None:
        """Check again after a commit whether something was erased in the meantime.

        A writer stores its blobs and then reads the records. An eraser writes its record, then deletes, then looks for
        new manifests. So at least one of the two sees the other. Content that was erased meanwhile is removed again,
        and artifacts derived from erased ones are marked. Raises ErasedArtifactError if the manifest, or a blob of it,
        was erased while it was published.
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
        if next(iter(self._objects.list(RECORDS)), None) is None:
            return
        for parent in map(Reference.parse, manifest.derived_from.values()):
            if erasure := self.of(parent) or self.behind(parent):
                create_record(self._objects, dependant_marker(manifest.reference), {"record": erasure.key})
                return

    def _remove(self, files: Sequence[FileEntry], erasure: Erasure) -> None:
        for key in erasure.blobs.keys() & {entry.blob for entry in files}:
            remove_blob(self._objects, key)

    def _covering(self, files: Sequence[FileEntry], reference: str = "") -> Erasure | None:
        blobs = {entry.blob for entry in files}
        for erasure in self.standing():
            if reference in erasure.artifacts or blobs & erasure.blobs.keys():
                return erasure
        return None

    def _record(self, key: str) -> Erasure:
        if key not in self._read:
            body = read_record(self._objects, key)
            if body is None:
                raise ErasedArtifactError(f"The record {key} of an erasure is gone. Restore it from a copy.")
            self._read[key] = Erasure.from_record(key, body)
        return self._read[key]


def remove_blob(objects: ObjectStore, key: str) -> bool:
    """Delete `key` in every generation, from the store and from this machine's cache; False if it was gone already."""
    removed = False
    objects.forget(key)
    while (stat := objects.stat(key)) is not None:
        removed = objects.delete(key, stat.generation) or removed
    return removed


def is_record(key: str) -> bool:
    """Whether `key` is a request to this store: `erasures/<n>.json`, and no other kind of record."""
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
