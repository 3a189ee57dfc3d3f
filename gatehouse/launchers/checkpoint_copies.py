"""Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

The command writes files as it likes. A file that changes between two looks may be incomplete, so it is not copied.
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

_LOOK_SECONDS = 5.0


class CheckpointCopies:
    """Copies of one folder, under `scratch/checkpoints/<name>` of a store: files by digest, and numbered lists."""

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._before = self._copied = self._state()
        self._next = 0.0

    def restore(self) -> None:
        """Write the files of the last copy, unless the folder has files: those are newer."""
        if any(self._folder.iterdir()) or not (lists := self._lists()):
            return
        for path, digest in (read_record(self._objects, lists[-1]) or {}).get("files", {}).items():
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / path).write_bytes(self._objects.get_bytes(f"{self._prefix}/{digest}"))

    def look(self, now: float, *, ended: bool = False) -> None:
        """Copy the files if they changed since a copy, and not since the last look, or the command has `ended`."""
        if now < self._next and not ended:
            return
        state = self._state()
        if state != self._copied and (ended or state == self._before):
            try:
                self._copy([path for path, _, _ in state])
                self._copied = state
            except (GatehouseError, OSError) as error:  # It is tried again; the command goes on.
                logger.warning("Checkpoints are not copied for now: %s", error)
        self._next, self._before = now + _LOOK_SECONDS, state

    def _state(self) -> list[tuple[Path, int, int]]:
        stats = [(path, path.stat()) for path in sorted(self._folder.rglob("*")) if path.is_file()]
        return [(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]

    def _copy(self, paths: list[Path]) -> None:
        digests, lists = {}, self._lists()
        for path in paths:
            with tempfile.NamedTemporaryFile() as frozen:  # The command may write the file while it is sent.
                shutil.copyfile(path, frozen.name)
                digest = hashlib.file_digest(frozen, "sha256").hexdigest()
                self._objects.put_file(f"{self._prefix}/{digest}", Path(frozen.name))
                digests[path.relative_to(self._folder).as_posix()] = digest
        number = int(lists[-1][-13:-5]) + 1 if lists else 0
        create_record(self._objects, f"{self._prefix}/files-{number:08d}.json", {"files": digests})
        for key in list(self._objects.list(self._prefix)):
            if key in lists or (key.rpartition("/")[2] not in digests.values() and "/files-" not in key):
                remove_record(self._objects, key)

    def _lists(self) -> list[str]:
        return sorted(key for key in self._objects.list(self._prefix) if "/files-" in key)
