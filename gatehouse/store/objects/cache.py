"""Local copies of remote blobs: verified when they are fetched; the least recently used are removed first."""

import contextlib
import errno
import hashlib
import os
import re
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from gatehouse.errors import ConfigurationError, StoreError

FOLDER, LIMIT = "GATEHOUSE_CACHE", "GATEHOUSE_CACHE_BYTES"
DEFAULT_LIMIT = 10 << 30
_IN_USE_SECONDS = 900.0
_DIGEST = re.compile(r"/([0-9a-f]{64})[^/]*\Z")


def cache_folder() -> Path:
    """The folder for local copies of remote stores: `GATEHOUSE_CACHE`, else one in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get(FOLDER) or Path(base) / "gatehouse")
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
    if os.access(folder, os.W_OK) or os.environ.get(FOLDER):
        return folder
    # The user of a container often has no writable home.
    return Path(tempfile.gettempdir()) / f"gatehouse-cache-{os.getuid()}"


class KnownKeys:
    """Remembers which blobs a remote store holds, to save requests. Every commit checks them again.

    They are kept in a file, one key per line. A line that begins with `-` says that the store no longer holds the key.
    """

    def __init__(self, address: str) -> None:
        self._path = cache_folder() / "known" / hashlib.sha256(address.encode()).hexdigest()[:16]
        self._lock = threading.Lock()
        self._keys: set[str] = set()
        with contextlib.suppress(OSError):
            for line in self._path.read_text().split():
                self._keys.discard(line[1:]) if line.startswith("-") else self._keys.add(line)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember a key, also for later processes if the disk can be written."""
        with self._lock:
            if key not in self._keys:
                self._keys.add(key)
                self._write(key)

    def forget(self, key: str) -> None:
        """Forget a key that the store no longer holds."""
        with self._lock:
            if key in self._keys:
                self._keys.discard(key)
                self._write(f"-{key}")

    def _write(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # A short append is written in one piece, even if several processes append.
            with open(self._path, "a") as file:
                file.write(f"{line}\n")


class BlobCache:
    """A folder of blobs by digest, for all processes of a user and all stores: equal digests mean equal bytes.

    A blob that was used in the last 15 minutes is not removed, so that a returned path stays valid.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Open a cache.

        Args:
            folder: Where the blobs are.
            limit: Maximum total bytes of the blobs.
        """
        self._folder, self._limit = folder, limit
        self._added = limit  # So that the first blob triggers a look at the folder.

    @classmethod
    def default(cls) -> "BlobCache":
        """The cache in `GATEHOUSE_CACHE`, or the user's cache folder, of at most `GATEHOUSE_CACHE_BYTES`.

        Raises:
            ConfigurationError: if `GATEHOUSE_CACHE_BYTES` is no number of bytes.
        """
        limit = os.environ.get(LIMIT) or str(DEFAULT_LIMIT)
        if not re.fullmatch("[0-9]+", limit):
            raise ConfigurationError(f"{LIMIT}: expected a number of bytes, such as 10000000000, found {limit!r}.")
        return cls(cache_folder() / "blobs", int(limit))

    def get(self, key: str, fetch: Callable[[Path], None]) -> Path:
        """The file of a blob, which is fetched if it is not here.

        Args:
            key: The blob's key in the store, which ends in its digest.
            fetch: Writes the verified bytes to a path.

        Raises:
            StoreError: if the file cannot be written here.
            FileNotFoundError: if `fetch` does not find the key.
        """
        wanted = self._path(key)
        with contextlib.suppress(FileNotFoundError):
            os.utime(wanted)
            return wanted
        try:
            return self._enter(wanted, fetch)
        except FileNotFoundError:
            raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not self._evict(0):
                raise self._not_kept(key, error) from error
        # The disk was full. Blobs that were not in use have been removed.
        try:
            return self._enter(wanted, fetch)
        except OSError as error:
            raise self._not_kept(key, error) from error

    def _enter(self, wanted: Path, fetch: Callable[[Path], None]) -> Path:
        temporary = wanted.with_name(f".{uuid.uuid4().hex}")
        try:
            wanted.parent.mkdir(parents=True, exist_ok=True)
            fetch(temporary)
            size = temporary.stat().st_size
            os.chmod(temporary, 0o444)
            os.replace(temporary, wanted)
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        self._make_room(size)
        return wanted

    def _not_kept(self, key: str, error: OSError) -> StoreError:
        return StoreError(
            f"{key} could not be kept in the cache {self._folder}: {error.strerror or error}. Free some space, or name "
            f"another folder with {FOLDER}."
        )

    def forget(self, key: str) -> None:
        """Delete a blob, so that it is fetched again."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        digest = digest_of_blob(key)
        return self._folder / digest[:2] / key.rsplit("/", 1)[1]

    def _make_room(self, added: int) -> None:
        """Keep to the limit. The folder is checked only after a twentieth of the limit was added."""
        self._added += added
        if self._added >= self._limit / 20:
            self._added = 0
            self._evict(self._limit)

    def _evict(self, limit: int) -> int:
        """Remove the least recently used blobs, until at most `limit` bytes are left. Returns their number."""
        found = []
        for path in self._folder.glob("*/*"):
            with contextlib.suppress(FileNotFoundError):
                stat = path.stat()
                found.append((stat.st_mtime, stat.st_size, path))
        total, gone = sum(size for _, size, _ in found), 0
        for used, size, path in sorted(found):
            if total <= limit or time.time() - used < _IN_USE_SECONDS:
                break
            path.unlink(missing_ok=True)
            total, gone = total - size, gone + 1
        return gone


def digest_of_blob(key: str) -> str:
    """The SHA-256 in the key of a blob."""
    match = _DIGEST.search(key)
    assert match is not None, f"{key} is not the key of a blob"
    return match[1]
