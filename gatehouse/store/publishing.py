"""Publishing: stores blobs, then the manifest, then touches what was there already, and stores again what is gone.

A killed writer leaves no reference to an incomplete artifact, and two writers of the same artifact agree.
`gatehouse.store.age` says why this is safe beside a collector.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from gatehouse.errors import ConfigurationError, GatehouseError, MissingArtifactError
from gatehouse.store.age import touch
from gatehouse.store.canonical import sha256_bytes, sha256_of
from gatehouse.store.erasure import require_kept
from gatehouse.store.manifest import FileEntry, Manifest
from gatehouse.store.objects.base import ObjectStore, Stat, side_by_side
from gatehouse.store.records import remove_record

logger = logging.getLogger(__name__)

NO_KINDS = frozenset(
    {
        *("blobs", "code", "erasures", "events", "gc", "jobs", "measurements", "memo", "operations"),
        *("provenance", "quarantine", "registry", "reports", "retraining", "runs", "scratch", "server", "sources"),
        *("tmp", "tracking", "traffic", "triggers", "tuning", "turns"),
    }
)
"""Folders of a store that hold no manifests. No kind of artifact may have such a name."""
QUARANTINE = "quarantine"
"""Folder of damaged bytes. They are kept, as they may be the only copy of rows that the source no longer has."""
Content = Path | bytes | FileEntry | Callable[[], Path | bytes]
"""The content of a file: a local file, bytes, the entry of a stored blob, or a function that fetches it."""


class Publisher:
    """Writes artifacts into one object store."""

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def commit(self, manifest: Manifest, contents: Mapping[str, Content]) -> None:
        """Make an artifact visible: the contents of its files, by path, then its manifest.

        If it raises, nothing is visible. Raises ConfigurationError if the kind has the name of a folder that the store
        uses for something else; StoreError if writing fails; MissingArtifactError if an input is not in the store, or a
        blob that should be stored already is missing or incomplete; ErasedArtifactError if the artifact was erased on
        request.
        """
        if manifest.kind in NO_KINDS:
            raise ConfigurationError(
                f"{manifest.reference.short}: expected another kind than {manifest.kind!r}, a folder of the store. "
                f"Reserved names: {', '.join(sorted(NO_KINDS))}."
            )
        key, text = f"{manifest.reference}/manifest.json", manifest.to_json().encode()
        inputs = [f"{parent}/manifest.json" for parent in manifest.derived_from.values()]
        require_kept(self._objects, manifest.reference)
        self._put_files(manifest.files, contents)
        created = self._objects.put_bytes(key, text)
        try:
            # From here on the manifest keeps its blobs, but a collector that looked before may have deleted one.
            stats = touch(self._objects, [*(entry.blob for entry in manifest.files), key, *inputs])
            if gone := [name for name in inputs if stats[name] is None]:
                raise MissingArtifactError(
                    f"{manifest.reference.short} was not published: its input {gone[0].rpartition('/')[0]} is not in "
                    "the store any more. Run the stages that made it again."
                )
            lost = [entry for entry in manifest.files if not self._is_right(entry, stats[entry.blob])]
            self._put_files(lost, contents)
            if stats[key] is None:
                self._objects.put_bytes(key, text)
            require_kept(self._objects, manifest.reference)
        except GatehouseError:
            if created:
                remove_record(self._objects, key)
            raise

    def keep(self, path: str, content: Path | bytes, rows: int | None) -> FileEntry:
        """Store one file ahead of its artifact, as `ArtifactStore.keep` says."""
        entry = entry_of(path, content, rows)
        stat = touch(self._objects, [entry.blob])[entry.blob]
        if not self._is_right(entry, stat) or self._objects.parallel == 1:
            self._put_blob(entry, content)
        return entry

    def _put_files(self, entries: Sequence[FileEntry], contents: Mapping[str, Content]) -> None:
        """Store files. Content is fetched only if the store does not hold it yet."""
        named = [entry for entry in entries if not isinstance(contents[entry.path], (Path, bytes))]
        stats = self._objects.stats(entry.blob for entry in named)
        stored = {entry.path for entry in named if (stat := stats[entry.blob]) and stat.bytes == entry.bytes}
        for entry in named:
            if entry.path not in stored and isinstance(contents[entry.path], FileEntry):
                raise MissingArtifactError(
                    f"{entry.path} was not published: its blob {entry.blob} is missing or incomplete in the store "
                    f"{self._objects.address}. Run again to store it again."
                )

        def put(entry: FileEntry) -> None:
            content = contents[entry.path]
            if not isinstance(content, FileEntry):
                self._put_blob(entry, content() if callable(content) else content)

        side_by_side(self._objects, put, [entry for entry in entries if entry.path not in stored])

    def _put_blob(self, entry: FileEntry, content: Path | bytes) -> None:
        objects, key = self._objects, entry.blob
        while not (objects.put_bytes(key, content) if isinstance(content, bytes) else objects.put_file(key, content)):
            # A remote server verified the blob when it was sent, and `commit` compares its length.
            # A collector may delete an old blob right now. Then it is stored again.
            with contextlib.suppress(MissingArtifactError, FileNotFoundError):
                if objects.parallel > 1 or objects.sha256(key) == entry.sha256:
                    return
                quarantine(objects, key, entry.sha256)

    def _is_right(self, entry: FileEntry, stat: Stat | None) -> bool:
        """Whether a blob is stored with its right length. A wrong one is put into quarantine."""
        if stat is not None and stat.bytes != entry.bytes:
            quarantine(self._objects, entry.blob, entry.sha256)
        return stat is not None and stat.bytes == entry.bytes


def quarantine(objects: ObjectStore, key: str, sha256: str) -> str:
    """Move damaged content of a key to `quarantine/`, so that it is made again; returns its new key, or empty."""
    objects.forget(key)
    stat = objects.stat(key)
    try:
        data = b"" if stat is None else objects.get_bytes(key)
    except MissingArtifactError:
        stat = None
    if stat is None or sha256_bytes(data) == sha256:
        return ""
    copy = f"{QUARANTINE}/{key}/{sha256_bytes(data)}"
    objects.put_bytes(copy, data)
    objects.delete(key, stat.generation)
    logger.warning("%s held other bytes, which are in %s now.", key, copy)
    return copy


def quarantined(objects: ObjectStore, key: str) -> Iterator[str]:
    """The keys of all damaged bytes that were once stored under `key`."""
    return objects.list(f"{QUARANTINE}/{key}")


def entry_of(path: str, content: Path | bytes | FileEntry, rows: int | None = None) -> FileEntry:
    """The entry of a file with this path inside the artifact; `rows` is the row count of a table."""
    suffix = Path(path).suffix
    if isinstance(content, FileEntry):
        return replace(content, path=path, rows=content.rows if rows is None else rows)
    if isinstance(content, bytes):
        return FileEntry(path, sha256_bytes(content), len(content), rows, suffix)
    return FileEntry(path, sha256_of(content), os.path.getsize(content), rows, suffix)


def files_of(path: str | Path) -> dict[str, Path]:
    """The files of a folder by their paths in it, or a file by its name; links inside of the folder are followed.

    Raises ConfigurationError if there is no file, or if a link leads out of the folder, to nothing, or in a circle.
    """
    path, files = Path(path), dict[str, Path]()
    root = path.resolve()

    def add(folder: Path, above: tuple[Path, ...]) -> None:
        for entry in sorted(folder.iterdir()):
            place = Path(os.path.realpath(entry))  # `resolve` raises for a link in a circle.
            if entry.is_symlink() and (not place.exists() or not place.is_relative_to(root) or place in above):
                raise ConfigurationError(
                    f"{entry}: expected links to files and folders of {path}, found one to {os.readlink(entry)}, which "
                    "leads out of it, to nothing, or in a circle. Put a copy in its place."
                )
            if entry.is_dir():
                add(entry, (*above, place))
            elif entry.is_file():
                files[str(entry.relative_to(path))] = entry

    if path.is_dir():
        add(path, (root,))
    if not (files := files or ({path.name: path} if path.is_file() else {})):
        raise ConfigurationError(f"{path}: expected a file, or a folder with files, found none.")
    return files


def digests_of(path: str | Path) -> dict[str, tuple[str, int]]:
    """SHA-256 and size in bytes of the files of a folder, or of a file, by path."""
    return {name: (sha256_of(file), os.path.getsize(file)) for name, file in files_of(path).items()}


def manifest_of(kind: str, name: str, files: Mapping[str, bytes]) -> Manifest:
    """The manifest of an artifact with these files and nothing else. It needs no store."""
    return Manifest(kind, name, tuple(entry_of(path, files[path]) for path in sorted(files)))
