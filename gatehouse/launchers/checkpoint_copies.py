"""Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

The command writes files as it likes. Of a file that changes while it is copied, the last whole copy is kept.
"""

import logging
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from gatehouse.errors import GatehouseError, MissingArtifactError, StoreError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.records import create_record, read_record, remove_record

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class CheckpointCopies:
    """Copies of one folder, under `scratch/checkpoints/<name>` of a store: files by digest, and numbered lists."""

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._copied: dict[str, tuple[list[int], str]] | None = None  # What each file was, and the digest of its copy.
        self._next, self._number = 0.0, -1  # When it looks, and the list that it found or wrote last.

    def restore(self, *, exactly: bool = False) -> None:
        """Write the files of the newest list, unless the folder has files; with `exactly`, remove or replace those.

        The files of one machine are newer than their copies. Several machines must go on from the same files.
        """
        if not exactly and any(self._folder.iterdir()):
            return
        number, files = self._newest()
        for path in [path for path in self._folder.rglob("*") if path.is_file()]:
            if sha256_of(path) != files.get(path.relative_to(self._folder).as_posix()):
                path.unlink()
        try:
            for name, digest in files.items():
                if not (path := self._folder / name).exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(self._objects.get_bytes(f"{self._prefix}/{digest}"))
        except MissingArtifactError:
            if self._newest()[0] == number:
                raise
            self.restore(exactly=True)  # A newer list has replaced this one.

    def look(self, now: float, *, ended: bool = False) -> None:
        """Copy the files that changed since the last look, some seconds ago, or before the command has `ended`."""
        if now < self._next and not ended:
            return
        self._next = now + _LOOK_SECONDS
        try:
            paths = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
            copies = {path.relative_to(self._folder).as_posix(): self._copy(path) for path in paths}
            if (copied := {name: copy for name, copy in copies.items() if copy}) != self._copied:
                digests, (number, files) = {name: digest for name, (_, digest) in copied.items()}, self._newest()
                if self._copied is not None and number > self._number:
                    raise StoreError("another machine goes on with this job.")
                self._number = number + (digests != files)  # The list may be there although the store did not answer.
                if digests != files:
                    key = f"{self._prefix}/files-{self._number:08d}.json"
                    create_record(self._objects, key, {"files": digests})
                    for other in list(self._objects.list(self._prefix)):
                        if other != key and other.rpartition("/")[2] not in digests.values():
                            remove_record(self._objects, other)
                self._copied = copied
        except (GatehouseError, OSError) as error:  # It is tried again; the command goes on.
            logger.warning("Checkpoints are not copied for now: %s", error)

    def _copy(self, path: Path) -> tuple[list[int], str] | None:
        kept = (self._copied or {}).get(path.relative_to(self._folder).as_posix())
        # The command may write, rename or remove the file meanwhile.
        with suppress(FileNotFoundError), tempfile.NamedTemporaryFile() as frozen:
            if (before := _state(path)) != (kept and kept[0]):
                shutil.copyfile(path, frozen.name)
                if _state(path) == before:
                    digest = sha256_of(Path(frozen.name))
                    self._objects.put_file(f"{self._prefix}/{digest}", Path(frozen.name))
                    return before, digest
        return kept

    def _newest(self) -> tuple[int, dict[str, str]]:
        """Number of the newest list and the digest of each file in it; -1 and no files if there is no list."""
        while lists := sorted(key for key in self._objects.list(self._prefix) if "/files-" in key):
            if record := read_record(self._objects, lists[-1]):  # Else a newer one has replaced it.
                return int(lists[-1][-13:-5]), record["files"]
        return -1, {}


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]
