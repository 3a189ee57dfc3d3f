"""Local copies of remote blobs: verified when they are fetched; the least recently used are removed first."""

import contextlib
import os
import re
import tempfile
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


class BlobCache:
    """A folder of blobs by digest, for all processes of a user and all stores: equal digests mean equal bytes.

    A blob that was used in the last 15 minutes is not removed, so that a returned path stays valid.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Open a cache of at most `limit` bytes."""
        self._folder, self._limit = folder, limit
        self._added = limit  # So that the first blob triggers a look at the folder.

    @classmethod
    def default(cls) -> "BlobCache":
        """The cache in `cache_folder()`; raises ConfigurationError if `GATEHOUSE_CACHE_BYTES` is no number of bytes."""
        limit = os.environ.get(LIMIT) or str(DEFAULT_LIMIT)
        if not re.fullmatch("[0-9]+", limit):
            raise ConfigurationError(f"{LIMIT}: expected a number of bytes, such as 10000000000, found {limit!r}.")
        return cls(cache_folder() / "blobs", int(limit))

    def get(self, key: str, fetch: Callable[[Path], None]) -> Path:
        """The file of a blob; if it is missing, `fetch` writes its verified bytes. Raises StoreError on a full disk."""
        path = self._path(key)
        with contextlib.suppress(FileNotFoundError):
            os.utime(path)
            return path
        temporary = path.with_name(f".{uuid.uuid4().hex}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            fetch(temporary)
            self._added += temporary.stat().st_size
            os.chmod(temporary, 0o444)
            os.replace(temporary, path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise StoreError(
                f"{key} could not be kept in the cache {self._folder}: {error.strerror or error}. Free some space, or "
                f"name another folder with {FOLDER}."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
        if self._added >= self._limit / 20:  # The folder is read only after a twentieth of the limit was added.
            self._added = 0
            blobs = []
            for blob in self._folder.glob("*/*"):
                with contextlib.suppress(FileNotFoundError):
                    blobs.append((blob.stat().st_mtime, blob.stat().st_size, blob))
            total = sum(size for _, size, _ in blobs)
            for used, size, blob in sorted(blobs):
                if total <= self._limit or time.time() - used < _IN_USE_SECONDS:
                    break
                blob.unlink(missing_ok=True)
                total -= size
        return path

    def forget(self, key: str) -> None:
        """Delete a blob, so that it is fetched again."""
        self._path(key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self._folder / digest_of_blob(key)[:2] / key.rsplit("/", 1)[1]


def digest_of_blob(key: str) -> str:
    """The SHA-256 in the key of a blob."""
    match = _DIGEST.search(key)
    assert match is not None, f"{key} is not the key of a blob"
    return match[1]
