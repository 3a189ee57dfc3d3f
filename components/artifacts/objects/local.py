"""A local directory as an object store."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gatehouse.components.artifacts.objects.base import Stat
from gatehouse.errors import MissingArtifactError, StoreError


class LocalObjects:
    """A directory. Creation is atomic (a hard link of a finished temporary file) and never overwrites."""

    parallel = 1

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
            os.utime(temporary)  # A link keeps the time of its file, and a generation must be new.
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

    def forget(self, key: str) -> None:
        """Nothing: the bytes are kept once."""

    def stat(self, key: str) -> Stat | None:
        """Length, inode with change time, and time of `key`."""
        try:
            found = self._final(key).stat()
        except FileNotFoundError:
            return None
        return Stat(found.st_size, f"{found.st_ino}-{found.st_mtime_ns}", found.st_mtime)

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, one after another."""
        return {key: self.stat(key) for key in keys}

    def renew(self, key: str) -> bool:
        """Set the time of `key` to now."""
        with self._alone():
            try:
                os.utime(self._final(key))
            except FileNotFoundError:
                return False
        return True

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if nobody renewed it."""
        with self._alone():
            found = self.stat(key)
            if found is None or found.generation != generation:
                return False
            self._final(key).unlink()
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock under which generations are compared and changed."""
        with open(self.root / "tmp" / "generations.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""
        found = []
        for directory, _, names in os.walk(self._final(prefix)):
            found += [str((Path(directory) / name).relative_to(self.root)) for name in names]
        yield from sorted(found)

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
