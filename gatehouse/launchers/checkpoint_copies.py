"""Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

The command writes files as it likes. A file is copied once it has not changed between two looks, so that a file that is
being written does not replace a whole one. Each copy is a record that lists all files by digest, beside their bytes.
"""

import hashlib
import logging
import shutil
import tempfile
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.records import create_record, read_record, remove_record

logger = logging.getLogger(__name__)

_COPY_SECONDS = 5.0
_State = dict[str, tuple[int, int]]


class CheckpointCopies:
    """The copies of one folder, under `scratch/checkpoints/<name>` of a store."""

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._before: _State = {}
        self._copied: _State = {}
        self._next = 0.0

    def restore(self) -> None:
        """Write the files of the last copy, unless the folder has files: those are newer."""
        if any(self._folder.iterdir()) or not (records := self._records()):
            return
        for path, digest in (read_record(self._objects, records[-1]) or {}).get("files", {}).items():
            data = self._objects.get_bytes(f"{self._prefix}/{digest}")
            if hashlib.sha256(data).hexdigest() != digest:
                logger.warning("The copy of the checkpoint file %s is damaged: it is left out.", path)
                continue
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / path).write_bytes(data)

    def look(self, now: float) -> None:
        """Copy the files if they changed since the last copy, and not since the last look, five seconds ago."""
        if now >= self._next:
            self._next, state = now + _COPY_SECONDS, self._state()
            if state == self._before and state != self._copied:
                self._copy(state)
            self._before = state

    def finish(self, *, whole: bool) -> None:
        """Copy once more if the command has ended by itself, and its files are `whole`."""
        if whole and (state := self._state()) != self._copied:
            self._copy(state)

    def _state(self) -> _State:
        """Size and time of every file by its path, without those whose name says that they are being written."""
        files = [
            path for path in self._folder.rglob("*") if path.is_file() and not path.name.endswith((".tmp", ".part"))
        ]
        stats = {path.relative_to(self._folder).as_posix(): path.stat() for path in files}
        return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}

    def _copy(self, state: _State) -> None:
        try:
            digests, records = {}, self._records()
            for path in state:
                with (
                    tempfile.NamedTemporaryFile() as frozen
                ):  # A store may link the file, and the command may write it.
                    shutil.copyfile(self._folder / path, frozen.name)
                    digests[path] = hashlib.file_digest(frozen, "sha256").hexdigest()
                    self._objects.put_file(f"{self._prefix}/{digests[path]}", Path(frozen.name))
            number = int(records[-1].rpartition("-")[2].removesuffix(".json")) + 1 if records else 0
            create_record(self._objects, f"{self._prefix}/files-{number:08d}.json", {"files": digests})
            kept = {f"{self._prefix}/{digest}" for digest in digests.values()}
            for key in list(self._objects.list(self._prefix)):
                if key in records or ("/files-" not in key and key not in kept):
                    remove_record(self._objects, key)
            self._copied = state
        except (GatehouseError, OSError) as error:  # It is tried again; the command goes on.
            logger.warning("Checkpoints are not copied for now: %s", error)

    def _records(self) -> list[str]:
        return sorted(key for key in self._objects.list(self._prefix) if "/files-" in key)
