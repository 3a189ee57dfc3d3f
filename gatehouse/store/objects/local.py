"""A local directory as an object store."""

import errno
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from gatehouse.errors import GatehouseError, MissingArtifactError, StoreError
from gatehouse.store.atomic_file import sync
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.base import Stat

LOCK = "tmp/generations.lock"
_ABSENT = (FileNotFoundError, NotADirectoryError)


class LocalObjects:
    """A directory. A key is created atomically, as a hard link to a finished temporary file, and never overwritten.

    Writing raises StoreError if the disk is full or cannot be written; reading, if the user lacks the permission.
    """

    parallel = 1

    def __init__(self, root: Path) -> None:
        """Open the directory `root`, creating it if missing. Raises StoreError if it cannot be written."""
        self.root = root
        self.address = str(root)
        try:
            (root / "tmp").mkdir(parents=True, exist_ok=True)
            self._opened = (root / "tmp").stat()
        except OSError as error:
            raise StoreError(
                f"The store {root} cannot be opened: expected a directory that can be written, found: "
                f"{error.strerror} ({error.filename}). Choose another store."
            ) from error

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key` atomically; False if it exists."""
        with self._creating(key) as temporary:
            with open(temporary, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fchmod(stream.fileno(), 0o444)
                os.fsync(stream.fileno())
            return self._install(temporary, key)

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from `path`: a hard link on the store's file system, else a copy; False if it exists."""
        with self._creating(key) as temporary:
            try:
                os.link(path.resolve(), temporary)  # Linux would link to a symbolic link itself.
            except OSError:
                shutil.copyfile(path, temporary)
            os.chmod(temporary, 0o444)
            os.utime(temporary)  # A link has the file's time, but a generation must be new.
            sync(temporary)
            return self._install(temporary, key)

    @contextmanager
    def _creating(self, key: str) -> Iterator[Path]:
        """The path of a temporary file for `key`, removed at the end."""
        temporary = self.root / "tmp" / uuid.uuid4().hex
        try:
            yield temporary
        except OSError as error:
            cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error)
            raise StoreError(
                f"{key} could not be written to the store {self.root}: {cause}. Nothing was published."
            ) from error
        finally:
            temporary.unlink(missing_ok=True)

    def _install(self, temporary: Path, key: str) -> bool:
        final = self.root / key
        final.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(temporary, final)
        except FileExistsError:
            return False
        sync(final.parent)
        return True

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`."""
        try:
            return (self.root / key).read_bytes()
        except OSError as error:
            raise self._not_read(key, error) from error

    def local_path(self, key: str) -> Path:
        """The file itself."""
        path = self.root / key
        try:
            path.stat()
        except OSError as error:
            raise self._not_read(key, error) from error
        return path

    def sha256(self, key: str) -> str:
        """Digest of the file."""
        return sha256_of(self.local_path(key))

    def forget(self, key: str) -> None:
        """Does nothing: there is no other copy."""

    def stat(self, key: str) -> Stat | None:
        """Length, inode with time, and time of `key`."""
        try:
            stat = (self.root / key).stat()
        except _ABSENT:
            return None
        except OSError as error:
            raise self._not_read(key, error) from error
        return Stat(stat.st_size, f"{stat.st_ino}-{stat.st_mtime_ns}", stat.st_mtime)

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, one after another."""
        return {key: self.stat(key) for key in keys}

    def renew(self, key: str) -> bool:
        """Set the time of `key` to now; a file of another user is replaced by a copy."""
        path = self.root / key
        with self._creating(key) as temporary, self._alone():
            try:
                os.utime(path)
            except FileNotFoundError:
                return False
            except PermissionError:
                shutil.copyfile(path, temporary)
                os.chmod(temporary, 0o444)
                os.replace(temporary, path)
        return True

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if nobody renewed it."""
        with self._alone():
            stat = self.stat(key)
            if stat is None or stat.generation != generation:
                return False
            (self.root / key).unlink()
        return True

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the lock for comparing a generation and then changing or deleting the key."""
        with open(self.root / LOCK, "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted. A folder that cannot be read is an error, never an empty one."""
        keys = []
        for directory, _, names in os.walk(self.root / prefix, onerror=self._not_listed):
            keys += [str((Path(directory) / name).relative_to(self.root)) for name in names]
        yield from sorted(keys)

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""
        try:
            with os.scandir(self.root / prefix) as items:
                names = sorted(item.name for item in items if item.is_dir())
        except OSError as error:
            self._not_listed(error)
            return
        yield from names

    def _not_listed(self, error: OSError) -> None:
        if not isinstance(error, _ABSENT) or self._is_gone():
            raise self._not_read(str(error.filename), error) from error

    def _is_gone(self) -> bool:
        """Whether the store's folder `tmp` is missing, for example because its volume is no longer mounted.

        If another process opens the store then, it creates the folder on another device. A volume that is mounted again
        may also have another device, but keeps its inodes.
        """
        try:
            tmp = (self.root / "tmp").stat()
        except OSError:
            return True
        return tmp.st_dev != self._opened.st_dev and tmp.st_ino != self._opened.st_ino

    def _not_read(self, what: str, error: OSError) -> GatehouseError:
        if self._is_gone():
            return StoreError(
                f"The store {self.root} is gone: its folder tmp is missing, or on another device. Mount its volume, or "
                "restore it, and start this process again."
            )
        if isinstance(error, _ABSENT):
            return MissingArtifactError(
                f"{what} is not in the store {self.root}. Check the reference and the store's address."
            )
        return StoreError(f"{what} in the store {self.root} cannot be read: {error.strerror}.")
