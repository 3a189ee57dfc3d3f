"""Where a store's bytes lie: the interface of an object store, and the local directory that implements it."""

import errno
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from gatehouse.errors import MissingArtifactError, StoreError


class ObjectStore(Protocol):
    """Create-only bytes under keys. A key that exists keeps its bytes for ever, unless it is deleted whole."""

    address: str

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`. Returns False, and changes nothing, where it is there already."""

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a local file, which may be moved. Returns False where the key is there already."""

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`. Raises MissingArtifactError."""

    def local_path(self, key: str) -> Path:
        """A local file with the bytes of `key`. Raises MissingArtifactError."""

    def size(self, key: str) -> int | None:
        """Bytes under `key`, or None where there is no such key."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""


class LocalObjects:
    """A directory. Creation is atomic (a hard link of a finished temporary file) and never overwrites."""

    def __init__(self, root: Path) -> None:
        """Open the directory `root`, creating it where it is missing.

        Raises:
            StoreError: if `root` cannot be a directory of ours.
        """
        self.root = root
        self.address = str(root)
        try:
            (root / "tmp").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The store {root} cannot be opened: expected a directory that can be written, "
                f"found: {error.strerror}. "
                "Choose another with --store."
            ) from error

    def _final(self, key: str) -> Path:
        return self.root / key

    def _install(self, temporary: Path, key: str) -> bool:
        final = self._final(key)
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(temporary, final)
        except FileExistsError:
            return False
        _sync_directory(final.parent)
        return True

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key` atomically; False where it exists."""
        temporary = self.root / "tmp" / uuid.uuid4().hex
        try:
            with open(temporary, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            return self._install(temporary, key)
        except OSError as error:
            raise _writing_failed(self.root, key, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from `path`: a hard link on the store's file system, else a copy; False where it exists."""
        temporary = self.root / "tmp" / uuid.uuid4().hex
        try:
            try:
                os.link(path, temporary)
            except OSError:
                shutil.copyfile(path, temporary)
            os.chmod(temporary, 0o444)
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
            return self._install(temporary, key)
        except OSError as error:
            raise _writing_failed(self.root, key, error) from error
        finally:
            temporary.unlink(missing_ok=True)

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`."""
        return self.local_path(key).read_bytes()

    def local_path(self, key: str) -> Path:
        """The file itself."""
        path = self._final(key)
        if not path.is_file():
            raise MissingArtifactError(
                f"{key} is not in the store {self.root}. Check the reference and the store's address."
            )
        return path

    def size(self, key: str) -> int | None:
        """Bytes under `key`, or None."""
        try:
            return self._final(key).stat().st_size
        except FileNotFoundError:
            return None

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""
        folder = self._final(prefix)
        for directory, subdirectories, names in os.walk(folder):
            subdirectories.sort()
            for name in sorted(names):
                yield str((Path(directory) / name).relative_to(self.root))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""
        folder = self._final(prefix)
        if folder.is_dir():
            yield from sorted(item.name for item in folder.iterdir() if item.is_dir())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _writing_failed(root: Path, key: str, error: OSError) -> StoreError:
    cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
    return StoreError(f"{key} could not be written to the store {root}: {cause}. Nothing was published.")
