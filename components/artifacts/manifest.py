"""Manifests: what an artifact is made of. The SHA-256 of a manifest's canonical JSON is the artifact's digest."""

import json
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from gatehouse.components.artifacts.canonical import canonical_json, digest_of, sha256_bytes
from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.reference import Reference
from gatehouse.errors import CorruptArtifactError, MissingArtifactError, StoreError

FORMAT = "gatehouse/manifest/1"


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact. `rows` is given for tables only; `suffix` ends the name of its blob."""

    path: str
    sha256: str
    bytes: int
    rows: int | None = None
    suffix: str = ""

    @property
    def blob(self) -> str:
        """The key of the bytes in the store."""
        return f"blobs/{self.sha256[:2]}/{self.sha256}{self.suffix}"


@dataclass(frozen=True)
class Column:
    """One column of a table artifact; `type` is the Arrow type's name."""

    name: str
    type: str
    nullable: bool = True


@dataclass(frozen=True)
class Shard:
    """A row range: `rows` rows from row `start` of one file, or, where `path` is empty, of all files in their order."""

    path: str
    start: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """Everything that identifies an artifact.

    Nothing in it varies between two identical runs: no clock, no host, no user, no absolute path. `derived_from`
    maps a role to the identity of an input; `configuration` is the canonical configuration of the stage that made
    it; `details` are small deterministic facts about the content.
    """

    kind: str
    name: str
    files: tuple[FileEntry, ...]
    columns: tuple[Column, ...] = ()
    rows: int | None = None
    shards: tuple[Shard, ...] = ()
    derived_from: dict[str, str] = field(default_factory=dict)
    configuration: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def schema_sha256(self) -> str:
        """Digest of the columns: equal for two tables with the same names, types and nullability in order."""
        return digest_of([vars(column) for column in self.columns])

    def to_json(self) -> str:
        """Canonical JSON of the manifest; its SHA-256 is the digest."""
        body = {one.name: getattr(self, one.name) for one in fields(self)}
        body |= {name: [vars(one) for one in body[name]] for name in ("files", "columns", "shards")}
        return canonical_json(body | {"format": FORMAT, "schema_sha256": self.schema_sha256})

    @cached_property
    def reference(self) -> Reference:
        """The identity that this manifest has in every store."""
        return Reference(self.kind, self.name, sha256_bytes(self.to_json().encode()))

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Manifest":
        """Rebuild a manifest from its parsed JSON.

        Raises:
            StoreError: if it has another format: another version of Gatehouse wrote it.
        """
        if body.get("format") != FORMAT:
            raise StoreError(
                f"{body.get('kind')}/{body.get('name')}: expected a manifest of the format {FORMAT!r}, found "
                f"{body.get('format')!r}. Another version of Gatehouse wrote it; read it with that one."
            )
        return cls(
            kind=body["kind"],
            name=body["name"],
            files=tuple(FileEntry(**entry) for entry in body["files"]),
            columns=tuple(Column(**column) for column in body["columns"]),
            rows=body["rows"],
            shards=tuple(Shard(**shard) for shard in body["shards"]),
            derived_from=body["derived_from"],
            configuration=body["configuration"],
            details=body["details"],
        )

    def entry(self, path: str) -> FileEntry | None:
        """The entry of one file, or None where the artifact has no such file."""
        return next((entry for entry in self.files if entry.path == path), None)


def read_manifest(objects: ObjectStore, reference: Reference) -> Manifest:
    """The manifest of `reference`, verified against its digest.

    Raises:
        MissingArtifactError: if the store does not hold it.
        CorruptArtifactError: if its bytes do not have the digest of the reference.
        StoreError: if another version of Gatehouse wrote it.
    """
    try:
        data = objects.get_bytes(f"{reference}/manifest.json")
    except MissingArtifactError:
        raise MissingArtifactError(
            f"{reference} is not in the store {objects.address}. Check the reference with `gatehouse data list`, and "
            "the store with --store."
        ) from None
    if sha256_bytes(data) != reference.digest:
        raise CorruptArtifactError(
            f"{reference}: manifest.json was altered: expected SHA-256 {reference.digest}, found "
            f"{sha256_bytes(data)}. Restore the store from a copy, or delete this reference and run again."
        )
    return Manifest.from_json(json.loads(data))
