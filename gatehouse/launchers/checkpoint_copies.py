"""Copies of the checkpoints of a command in a store, for a machine or pod that takes over.

The command writes files as it likes. Of a file that changes while it is copied, the last whole copy is kept.
"""

import logging
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

from gatehouse.errors import GatehouseError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.opening import open_objects
from gatehouse.store.records import create_record, read_record, remove_record

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0


class CheckpointCopies:
    """Copies of one folder, under `scratch/checkpoints/<name>` of a store: files by digest, and numbered lists."""

    def __init__(self, store: str, name: str, folder: Path) -> None:
        self._objects, self._prefix, self._folder = open_objects(store), f"scratch/checkpoints/{name}", folder
        self._copied: dict[str, tuple[list[int], str]] = {}  # What each file was, and the digest of its copy.
        self._next = 0.0

    def restore(self) -> None:
        """Write the files of the last copy, unless the folder has files: those are newer."""
        if any(self._folder.iterdir()) or not (lists := self._lists()):
            return
        for path, digest in (read_record(self._objects, lists[-1]) or {}).get("files", {}).items():
            (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
            (self._folder / path).write_bytes(self._objects.get_bytes(f"{self._prefix}/{digest}"))

    def look(self, now: float, *, ended: bool = False) -> None:
        """Copy the files that changed since the last look, some seconds ago, or before the command has `ended`."""
        if now < self._next and not ended:
            return
        self._next = now + _LOOK_SECONDS
        try:
            paths = [path for path in sorted(self._folder.rglob("*")) if path.is_file()]
            copies = {path.relative_to(self._folder).as_posix(): self._copy(path) for path in paths}
            if (copied := {name: copy for name, copy in copies.items() if copy}) != self._copied:
                digests, lists = {name: digest for name, (_, digest) in copied.items()}, self._lists()
                number = int(lists[-1][-13:-5]) + 1 if lists else 0
                create_record(self._objects, f"{self._prefix}/files-{number:08d}.json", {"files": digests})
                for key in list(self._objects.list(self._prefix)):
                    if key in lists or (key.rpartition("/")[2] not in digests.values() and "/files-" not in key):
                        remove_record(self._objects, key)
                self._copied = copied
        except (GatehouseError, OSError) as error:  # It is tried again; the command goes on.
            logger.warning("Checkpoints are not copied for now: %s", error)

    def _copy(self, path: Path) -> tuple[list[int], str] | None:
        kept = self._copied.get(path.relative_to(self._folder).as_posix())
        # The command may write, rename or remove the file meanwhile.
        with suppress(FileNotFoundError), tempfile.NamedTemporaryFile() as frozen:
            if (before := _state(path)) != (kept and kept[0]):
                shutil.copyfile(path, frozen.name)
                if _state(path) == before:
                    digest = sha256_of(Path(frozen.name))
                    self._objects.put_file(f"{self._prefix}/{digest}", Path(frozen.name))
                    return before, digest
        return kept

    def _lists(self) -> list[str]:
        return sorted(key for key in self._objects.list(self._prefix) if "/files-" in key)


def _state(path: Path) -> list[int]:
    stat = path.stat()
    return [stat.st_ino, stat.st_size, stat.st_mtime_ns]
