"""Manifests: the contents of artifacts. The SHA-256 of a manifest's canonical JSON is the artifact's digest."""

import json
import re
import reprlib
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

from gatehouse.errors import CorruptArtifactError, InvalidManifestError, InvalidReferenceError, MissingArtifactError
from gatehouse.store.canonical import canonical_json, digest_of, sha256_bytes
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.reference import Reference, is_identity

FORMAT = "gatehouse/manifest/1"
_DIGEST = re.compile("[0-9a-f]{64}")
_SUFFIX = re.compile(r"(\.[A-Za-z0-9_+~-]{1,32})?")


@dataclass(frozen=True)
class FileEntry:
    """One file of an artifact. `rows` is given for tables only; `suffix` ends the name of its blob.

    Path, digest and suffix become paths and keys, so they are checked here, wherever an entry comes from. Raises
    InvalidManifestError if a field could refer to anything but a file of the artifact and its blob.
    """

    path: str
    sha256: str
    bytes: int
    rows: int | None = None
    suffix: str = ""

    def __post_init__(self) -> None:
        printable = isinstance(self.path, str) and self.path.isprintable() and "\\" not in self.path
        inside = printable and not {"", ".", ".."} & set(self.path.split("/"))
        _require("path", self.path, inside, "a path inside the artifact")
        digest = isinstance(self.sha256, str) and _DIGEST.fullmatch(self.sha256)
        _require("sha256", self.sha256, digest, "64 hexadecimal digits in lower case")
        suffix = isinstance(self.suffix, str) and _SUFFIX.fullmatch(self.suffix)
        _require("suffix", self.suffix, suffix, "nothing, or a dot with 1 to 32 letters and digits")
        _require("bytes", self.bytes, _is_count(self.bytes), "a number of bytes")
        _require("rows", self.rows, self.rows is None or _is_count(self.rows), "a number of rows, or none")

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
    """A row range: `rows` rows from row `start` of one file, or of all files in order if `path` is empty."""

    path: str
    start: int
    rows: int


@dataclass(frozen=True)
class Manifest:
    """Everything that identifies an artifact.

    Nothing in it varies between two identical runs: no clock, no host, no user, no absolute path. `derived_from` maps a
    role to the identity of an input; `configuration` is the canonical configuration of the stage that made it;
    `details` are small deterministic facts about the content. Raises InvalidManifestError if two files have the same
    path, a shard has the path of no file, or an input has no identity.
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

    def __post_init__(self) -> None:
        paths = {entry.path for entry in self.files}
        _require("files", [entry.path for entry in self.files], len(paths) == len(self.files), "each path once")
        for shard in self.shards:
            _require("shards", shard.path, shard.path in paths | {""}, "the path of one of the files, or none")
        for role, parent in self.derived_from.items():
            valid = isinstance(parent, str) and is_identity(parent)
            _require(f"derived_from.{role}", parent, valid, "<kind>/<name>/sha256-<64 hex>")

    def to_json(self) -> str:
        """Canonical JSON of the manifest; its SHA-256 is the digest."""
        body = {item.name: getattr(self, item.name) for item in fields(self)}
        body |= {name: [vars(item) for item in body[name]] for name in ("files", "columns", "shards")}
        return canonical_json(body | {"format": FORMAT, "schema_sha256": digest_of(body["columns"])})

    @cached_property
    def reference(self) -> Reference:
        """The identity that this manifest has in every store."""
        return Reference(self.kind, self.name, sha256_bytes(self.to_json().encode()))

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Manifest":
        """Rebuild a manifest from its parsed JSON.

        Raises InvalidManifestError if it has another format, or a field could refer to anything but a file of the
        artifact, its blob, or an input.
        """
        if body.get("format") != FORMAT:
            raise InvalidManifestError(
                f"expected the format {FORMAT!r}, found {body.get('format')!r}. Another version of Gatehouse wrote it; "
                "read it with that one."
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
        """The entry of one file, or None if the artifact has no such file."""
        return next((entry for entry in self.files if entry.path == path), None)


def read_manifest(objects: ObjectStore, reference: Reference) -> Manifest:
    """The manifest of `reference`, verified against its digest.

    Raises MissingArtifactError if the store does not hold it. Raises CorruptArtifactError if its bytes do not have the
    digest of the reference. Bytes with the right digest that are no manifest raise its subclass `InvalidManifestError`.
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
    try:
        manifest = Manifest.from_json(json.loads(data))
        own = manifest.reference
    except InvalidManifestError as error:
        raise InvalidManifestError(f"{reference}: manifest.json: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidReferenceError) as error:
        raise InvalidManifestError(
            f"{reference}: manifest.json: expected a manifest, found other content ({type(error).__name__}). {_CURE}"
        ) from error
    if own != reference:
        raise InvalidManifestError(
            f"{reference}: manifest.json: expected the canonical manifest of this reference, found the one of {own}. "
            f"{_CURE}"
        )
    return manifest


_CURE = "Gatehouse did not write it so: restore the store from a copy, or remove the folder of this reference."


def _require(name: str, value: Any, holds: object, expected: str) -> None:
    if not holds:
        raise InvalidManifestError(f"{name}: expected {expected}, found {reprlib.repr(value)}. {_CURE}")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
