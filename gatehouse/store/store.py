"""The artifact store: publishes immutable artifacts under references, and verifies what it reads."""

import contextlib
import fcntl
import json
import shutil
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from gatehouse.errors import CorruptArtifactError, GatehouseError, MissingArtifactError, StoreError
from gatehouse.store.canonical import sha256_bytes, sha256_of
from gatehouse.store.deprecation import warn_if_deprecated
from gatehouse.store.erasure import erased_marker, erasure_of, require_kept
from gatehouse.store.manifest import Column, FileEntry, Manifest, Shard, read_manifest
from gatehouse.store.objects.base import ObjectStore, side_by_side
from gatehouse.store.objects.local import LocalObjects
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.objects.remote import cache_folder
from gatehouse.store.publishing import NO_KINDS, Publisher, entry_of, quarantine
from gatehouse.store.records import create_record, read_records
from gatehouse.store.reference import Reference, references_in

_MOST_FILES = 100_000
"""How many files remembered manifests may have, each counted as one more; a larger one is remembered alone."""
WORKSPACE, _LOCK = "work-", ".lock"
"""How the names of a workspace and of its lock begin, and how the latter ends."""


class ArtifactStore:
    """Artifacts by reference. Bytes are stored once under their own digest, and so are manifests.

    Methods that read an artifact raise MissingArtifactError if the store does not hold it, CorruptArtifactError if
    bytes are missing or altered, and, except for `manifest`, ErasedArtifactError if it was erased.
    """

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self._publisher = Publisher(objects)
        self._verified: set[str] = set()
        self._warnings: dict[Reference, str] = {}
        self._manifests: dict[Reference, Manifest] = {}
        self._files, self._lock = 0, threading.Lock()

    @classmethod
    def open(cls, address: str | Path) -> "ArtifactStore":
        """Open the store at a directory, or at a `file://`, `gs://` or `s3://` address. Raises StoreError."""
        return cls(open_objects(str(address)))

    @property
    def address(self) -> str:
        """Address of the store, without a trailing slash."""
        return self.objects.address

    def address_of(self, reference: Reference | str) -> str:
        """`<store>/<identity>`, for task parameters and for people. It is never hashed."""
        return f"{self.address}/{Reference.parse(reference)}"

    @contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private directory, removed at the end: next to the objects of a local store, else on this machine.

        A lock file beside the directory shows other processes whether its owner has ended. The owner holds the lock
        before others can find either; the system releases it when the owner's process ends in any way. This also works
        between machines and containers that share the file system.
        """
        directory = self.local_folder / "tmp" / f"{WORKSPACE}{uuid.uuid4().hex}"
        lock = directory.with_suffix(_LOCK)
        hidden = lock.with_name(lock.name.removeprefix(WORKSPACE))
        with open(hidden, "x") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX)
            hidden.rename(lock)
            directory.mkdir(mode=0o700)
            try:
                yield directory
            finally:
                shutil.rmtree(directory, ignore_errors=True)
                lock.unlink(missing_ok=True)

    def sweep(self) -> int:
        """Remove the workspaces of killed processes; returns their number."""
        removed = set()
        for path in list((self.local_folder / "tmp").glob(f"{WORKSPACE}*")):
            with _abandoned(path) as abandoned:
                if abandoned:
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                    path.with_suffix(_LOCK).unlink(missing_ok=True)
                    removed.add(path.stem)
        return len(removed)

    def scratch(self, name: str) -> Path:
        """A directory that stays when the process ends, for checkpoints of unfinished work. The caller removes it."""
        directory = self.local_folder / "scratch" / name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    @property
    def local_folder(self) -> Path:
        """The local directory for a store's files that are no artifacts: logs and unfinished work."""
        if isinstance(self.objects, LocalObjects):
            return Path(self.address)
        root = cache_folder() / "work" / sha256_bytes(self.address.encode())[:16]
        (root / "tmp").mkdir(parents=True, exist_ok=True)
        return root

    def publish(
        self,
        kind: str,
        name: str,
        files: Mapping[str, Path | bytes | str | FileEntry],
        *,
        columns: Sequence[Column] = (),
        rows: int | None = None,
        rows_per_file: Mapping[str, int] | None = None,
        shards: Sequence[Shard] = (),
        derived_from: Mapping[str, Reference | str] | None = None,
        configuration: Mapping[str, Any] | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> Reference:
        """Publish an artifact and return its reference; publishing it again changes nothing.

        `files` holds content by path inside the artifact: a local file, bytes, text, or the entry of a stored blob. Do
        not change a file afterwards: a local store may link it. Tables have `columns`, row counts, and perhaps `shards`
        (balanced row ranges). `derived_from` has the reference of every input by its role, `details` are small facts
        that are the same in every run. Raises what `Publisher.commit` raises; nothing is visible then.
        """
        counts = rows_per_file or {}
        contents = {path: data.encode() if isinstance(data, str) else data for path, data in files.items()}
        manifest = Manifest(
            kind=kind,
            name=name,
            files=tuple(entry_of(path, contents[path], counts.get(path)) for path in sorted(contents)),
            columns=tuple(columns),
            rows=rows,
            shards=tuple(shards),
            derived_from={role: str(Reference.parse(parent)) for role, parent in (derived_from or {}).items()},
            configuration=dict(configuration or {}),
            details=dict(details or {}),
        )
        self._publisher.commit(manifest, contents)
        return manifest.reference

    def keep(self, path: str, content: Path | bytes, rows: int | None = None) -> FileEntry:
        """Store one file before its artifact, so that a large file need not stay on this machine.

        Pass the entry to `publish`. Until then no manifest lists the blob, so the collector deletes it when it is old;
        `publish` then raises an error. `path` is the path of the file inside the artifact, `rows` the row count of a
        table.
        """
        return self._publisher.keep(path, content, rows)

    def adopt(self, manifest: Manifest, fetch: Callable[[FileEntry], Path | bytes]) -> Reference:
        """Publish an artifact with a known manifest; `fetch` returns the verified content of a file not stored here."""
        self._publisher.commit(manifest, {entry.path: partial(fetch, entry) for entry in manifest.files})
        return manifest.reference

    def manifest(self, reference: Reference | str) -> Manifest:
        """The manifest of `reference`, verified against its digest; raises as `read_manifest` does.

        A store on a network is asked once, because a stage reads the manifest of a table for each of its pieces.
        """
        reference, known = Reference.parse(reference), self._manifests
        if self.objects.parallel == 1:
            return read_manifest(self.objects, reference)
        if (manifest := known.get(reference)) is not None:
            return manifest
        manifest = read_manifest(self.objects, reference)
        with self._lock:
            if known.setdefault(reference, manifest) is manifest:
                self._files += 1 + len(manifest.files)
            while len(known) > 1 and self._files > _MOST_FILES:
                self._files -= 1 + len(known.pop(next(iter(known))).files)
        return manifest

    def manifests(self, references: Iterable[Reference | str]) -> list[Manifest]:
        """The manifests of many artifacts, in their order, side by side."""
        return side_by_side(self.objects, self.manifest, references)

    def require_readable(self, reference: Reference | str) -> str:
        """Check that an artifact may be read; returns the warning if it is deprecated, else an empty text.

        `manifest` does not check this. Raises ErasedArtifactError if it was erased.
        """
        reference = Reference.parse(reference)
        if reference not in self._warnings:
            require_kept(self.objects, reference)
            self._warnings[reference] = warn_if_deprecated(self.objects, reference)
        return self._warnings[reference]

    def path(self, reference: Reference | str, file: str) -> Path:
        """A local file with the verified bytes of one file of an artifact. Read it; never write to it."""
        manifest = self.manifest(reference)
        self.require_readable(reference)
        entry = manifest.entry(file)
        if entry is None:
            names = ", ".join(entry.path for entry in manifest.files) or "none"
            raise MissingArtifactError(f"{Reference.parse(reference)} has no file {file!r}; it has: {names}.")
        return self.verified_path(Reference.parse(reference), entry)

    def paths(self, reference: Reference | str, names: Collection[str] | None = None) -> list[Path]:
        """Verified local files of an artifact, or those of these names, in the manifest's order."""
        reference = Reference.parse(reference)
        entries = [entry for entry in self.manifest(reference).files if names is None or entry.path in names]
        self.require_readable(reference)
        return side_by_side(self.objects, lambda entry: self.verified_path(reference, entry), entries)

    def read_bytes(self, reference: Reference | str, file: str) -> bytes:
        """The verified bytes of one file."""
        return self.path(reference, file).read_bytes()

    def read_text(self, reference: Reference | str, file: str) -> str:
        """The verified text (UTF-8) of one file."""
        return self.read_bytes(reference, file).decode()

    def read_json(self, reference: Reference | str, file: str) -> Any:
        """The verified and parsed JSON of one file."""
        return json.loads(self.read_bytes(reference, file))

    def copy(self, reference: Reference | str, file: str, target: Path | str) -> None:
        """Copy the verified bytes of one file to `target`."""
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(self.path(reference, file), target)

    def paths_of(self, references: Iterable[Reference | str], file: str) -> list[Path]:
        """Verified local files of one name, one of each artifact, in their order, fetched side by side."""
        return side_by_side(self.objects, lambda reference: self.path(reference, file), references)

    def verified_path(self, reference: Reference, entry: FileEntry) -> Path:
        """A local file with an entry's verified bytes; wrong ones are put aside. Call `require_readable` before."""
        try:
            if self.objects.parallel == 1 or entry.blob not in self._verified:
                self._require_whole(reference, entry)
            path = self.objects.local_path(entry.blob)
            if entry.blob not in self._verified:
                digest = sha256_of(path)
                if digest != entry.sha256:
                    # Perhaps only this machine's copy was altered. Fetch the store's own bytes.
                    self.objects.forget(entry.blob)
                    path = self.objects.local_path(entry.blob)
                    digest = sha256_of(path)
                if digest != entry.sha256:
                    raise _corrupt(reference, entry, f"has SHA-256 {digest}")
                self._verified.add(entry.blob)
            return path
        except CorruptArtifactError:
            self._quarantine(entry.blob, entry.sha256)
            raise

    def _quarantine(self, key: str, sha256: str) -> str:
        """Call `quarantine` and return its result; with read-only access nothing is moved, and the result is empty."""
        self._verified.discard(key)
        with contextlib.suppress(StoreError):
            return quarantine(self.objects, key, sha256)
        return ""

    def _require_whole(self, reference: Reference, entry: FileEntry) -> None:
        stat = self.objects.stat(entry.blob)
        if stat is None or stat.bytes != entry.bytes:
            require_kept(self.objects, reference)
            raise _corrupt(reference, entry, "is missing" if stat is None else f"has {stat.bytes} bytes")

    def _require_intact(self, reference: Reference, entry: FileEntry) -> None:
        """Read the store's own bytes, not this machine's copies."""
        self._require_whole(reference, entry)
        digest = self.objects.sha256(entry.blob)
        if digest != entry.sha256:
            raise _corrupt(reference, entry, f"has SHA-256 {digest}")

    def exists(self, reference: Reference | str) -> bool:
        """Whether the artifact is complete, by lengths, and not erased. Raises CorruptArtifactError."""
        try:
            manifest = read_manifest(self.objects, Reference.parse(reference))
        except MissingArtifactError:
            return False
        marker = erased_marker(manifest.reference)
        stats = self.objects.stats([marker, *(entry.blob for entry in manifest.files)])
        if stats[marker] is not None:
            return False
        return all((stat := stats[entry.blob]) is not None and stat.bytes == entry.bytes for entry in manifest.files)

    def intact(
        self,
        reference: Reference | str,
        report: Callable[[str], None],
        *,
        inputs: Collection[Reference] | None = None,
        lengths: bool = False,
    ) -> bool:
        """Whether the artifact is complete here with the right bytes, and not erased. Wrong bytes are put aside.

        `report` is called with one sentence about each damaged file. Blobs on this machine are read again, unless only
        `lengths` are compared. For blobs of a remote store only the lengths are compared, because its server keeps
        checksums and each reader verifies the bytes. If the `inputs` of the stage that made the artifact are given and
        it has no files of its own, its other parents, such as the tables of `feature-tables`, must be complete too, by
        their lengths. Raises InvalidManifestError if the manifest has the right digest, but is invalid.
        """
        reference = Reference.parse(reference)
        try:
            manifest = read_manifest(self.objects, reference)
        except MissingArtifactError:
            return False
        except CorruptArtifactError as error:
            if not (copy := self._quarantine(f"{reference}/manifest.json", reference.digest)):
                raise
            report(f"{error} Its bytes are in {copy} now.")
            return False
        if erasure_of(self.objects, reference) is not None:
            return False
        check = self._require_whole if lengths or self.objects.parallel > 1 else self._require_intact

        def damage(entry: FileEntry) -> str:
            try:
                check(reference, entry)
            except CorruptArtifactError as error:
                copy = self._quarantine(entry.blob, entry.sha256)
                return f"{error} Its bytes are in {copy} now." if copy else str(error)
            return ""

        messages = list(filter(None, side_by_side(self.objects, damage, manifest.files)))
        for message in messages:
            report(message)
        parts = () if inputs is None or manifest.files else map(Reference.parse, manifest.derived_from.values())
        whole = [self.intact(part, report, lengths=True) for part in parts if part not in (inputs or ())]
        return not messages and all(whole)

    def verify(self, reference: Reference | str) -> int:
        """Verify every byte of an artifact and of its lineage; returns the number of artifacts."""
        artifacts = 0
        for manifest in self.lineage(reference):
            artifacts += 1
            for entry in manifest.files:
                self._require_intact(manifest.reference, entry)
        return artifacts

    def lineage(self, reference: Reference | str) -> Iterator[Manifest]:
        """The manifest of an artifact, and of everything that it was derived from, each once."""
        seen: set[Reference] = set()
        pending = [Reference.parse(reference)]
        while pending:
            current = pending.pop()
            if current not in seen:
                seen.add(current)
                yield (manifest := read_manifest(self.objects, current))
                pending.extend(map(Reference.parse, manifest.derived_from.values()))

    def problems(self, reference: Reference | str) -> list[GatehouseError]:
        """All problems of one artifact; every byte is read again. An erased artifact has one problem."""
        reference = Reference.parse(reference)
        try:
            manifest = read_manifest(self.objects, reference)
            require_kept(self.objects, reference)
        except GatehouseError as error:
            return [error]
        errors: list[GatehouseError] = []
        for entry in manifest.files:
            try:
                self._require_intact(reference, entry)
            except GatehouseError as error:
                errors.append(error)
        return errors

    def references(self, kind: str | None = None, name: str | None = None) -> Iterator[Reference]:
        """All references in the store, sorted; only those of the given kind and name, if given."""
        for folder in [kind] if kind else sorted(set(self.objects.folders()) - NO_KINDS):
            keys = self.objects.list(f"{folder}/{name}" if name else folder)
            identities = [key.removesuffix("/manifest.json") for key in keys if key.endswith("/manifest.json")]
            yield from sorted(Reference.parse(identity) for identity in identities if references_in(identity))

    def record(self, key: str, body: Mapping[str, Any]) -> bool:
        """Create a JSON record under `key` (run records, measurements, provenance); False if it exists."""
        return create_record(self.objects, key, body)

    def append(self, prefix: str, body: Mapping[str, Any]) -> int:
        """Create the next free `<prefix>/<n>.json` and return n, from 1 on. Several writers may do so at once."""
        number = sum(1 for _ in self.objects.list(prefix)) + 1
        while not self.record(f"{prefix}/{number:06d}.json", body):
            number += 1
        return number

    def measurements(self, reference: Reference | str, *stages: str) -> list[dict[str, Any]]:
        """Measurements of an artifact by these stages, newest first."""
        records = read_records(self.objects, self.objects.list(f"measurements/{reference}"))
        return [body for _, body in sorted(records.items(), reverse=True) if body.get("stage") in stages]


@contextmanager
def _abandoned(path: Path) -> Iterator[bool]:
    """Whether the owner of a workspace has ended. If so, this process holds its lock until the end of the block."""
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(open(path.with_suffix(_LOCK)))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            abandoned = True
        except FileNotFoundError:
            abandoned = True  # Its owner has just removed it, or never created a lock.
        except OSError:
            abandoned = False
        yield abandoned


def _corrupt(reference: Reference, entry: FileEntry, state: str) -> CorruptArtifactError:
    return CorruptArtifactError(
        f"{reference}: {entry.path} {state}: expected {entry.bytes} bytes with SHA-256 {entry.sha256} in {entry.blob}. "
        "Run again: a stage that needs it writes it again. Otherwise restore it from a copy."
    )
