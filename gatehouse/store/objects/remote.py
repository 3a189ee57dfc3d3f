"""A store on a network: retries, lost answers, parallel requests, and a cache of verified blobs on this machine.

Each protocol implements `Bucket`; everything else is the same for all protocols.
"""

import contextlib
import os
import re
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from gatehouse.errors import ConfigurationError, CorruptArtifactError, MissingArtifactError, StoreError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.base import Stat, TransientError, retried, side_by_side

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


T = TypeVar("T")
_BLOBS = "blobs/"


class Bucket(Protocol):
    """The operations of a protocol; each needs a request or two. Keys are without the prefix in the bucket.

    Every method may raise TransientError for temporary failures, and StoreError for permanent ones. `fetch` and `read`
    raise FileNotFoundError for a missing key.
    """

    address: str

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key`, marked with `writer`. Returns False if it exists. The bytes on the server are verified."""

    def wrote(self, key: str, writer: str) -> bool:
        """Whether `writer` created `key`."""

    def fetch(self, key: str, target: Path) -> None:
        """Write the verified bytes of `key` to a new file."""

    def read(self, key: str) -> bytes:
        """The verified bytes of `key`."""

    def stat(self, key: str) -> Stat | None:
        """Length, generation and time of `key`, or None if it is missing."""

    def renew(self, key: str) -> bool:
        """Give `key` a new generation and time. Returns False if it is missing."""

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it has this generation. Returns False if it has another one, or is missing."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`."""

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""


class RemoteObjects:
    """The object store over a bucket. Blobs are cached on this machine; everything else is read again each time."""

    parallel = 16

    def __init__(self, bucket: Bucket, cache: BlobCache) -> None:
        self.address = bucket.address
        self._bucket = bucket
        self._cache = cache

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`; False if it exists."""
        return self._create(key, data)

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a file, streamed; False if it exists."""
        return self._create(key, path)

    def _create(self, key: str, content: bytes | Path) -> bool:
        # Checking first costs less than sending a blob that the server refuses.
        if key.startswith(_BLOBS) and self.stat(key) is not None:
            return False
        writer = uuid.uuid4().hex

        def attempt(_: bool) -> bool:
            # If the key exists, an earlier attempt of this call may have created it, with only the answer lost.
            return self._bucket.create(key, content, writer) or self._bucket.wrote(key, writer)

        return self._request(attempt, f"writing {key}")

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`."""
        with self._missing(key):
            return self._request(lambda _: self._bucket.read(key), f"reading {key}")

    def local_path(self, key: str) -> Path:
        """The file in the cache with the bytes of a blob."""
        with self._missing(key):
            return self._cache.get(key, lambda target: self._fetch(key, target))

    def sha256(self, key: str) -> str:
        """Digest of a blob. The blob is not cached, because verification must not fill the disk."""
        with tempfile.TemporaryDirectory(prefix="verify-", dir=cache_folder()) as folder, self._missing(key):
            self._fetch(key, Path(folder) / "blob")
        return digest_of_blob(key)

    def _fetch(self, key: str, target: Path) -> None:
        altered = ""

        def attempt(_: bool) -> None:
            nonlocal altered
            altered = ""
            target.unlink(missing_ok=True)
            self._bucket.fetch(key, target)
            if (digest := sha256_of(target)) != digest_of_blob(key):
                altered = digest
                raise TransientError(OSError(f"other bytes arrived, with SHA-256 {digest}"))

        try:
            self._request(attempt, f"fetching {key}")
        except StoreError:
            if not altered:
                raise
            raise CorruptArtifactError(
                f"{key} has SHA-256 {altered} in the store {self.address}: expected the SHA-256 in its name. "
                "Run again: a stage that needs it writes it again. Otherwise restore it from a copy."
            ) from None

    def forget(self, key: str) -> None:
        """Delete the cached bytes of `key`. Only blobs are cached."""
        if key.startswith(_BLOBS):
            self._cache.forget(key)

    def stat(self, key: str) -> Stat | None:
        """The store's metadata of `key`."""
        return self._request(lambda _: self._bucket.stat(key), f"looking for {key}")

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, in parallel."""
        keys = list(dict.fromkeys(keys))
        return dict(zip(keys, side_by_side(self, self.stat, keys), strict=True))

    def renew(self, key: str) -> bool:
        """Give `key` a new generation and time."""
        return self._request(lambda _: self._bucket.renew(key), f"renewing {key}")

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it has this generation. If an answer was lost and the key is gone, we deleted it."""

        def attempt(again: bool) -> bool:
            return self._bucket.delete(key, generation) or (again and self._bucket.stat(key) is None)

        return self._request(attempt, f"deleting {key}")

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`, sorted."""
        yield from sorted(self._request(lambda _: list(self._bucket.list(prefix)), f"listing {prefix}"))

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly below `prefix`, sorted."""
        yield from sorted(self._request(lambda _: list(self._bucket.folders(prefix)), f"listing {prefix}"))

    def _request(self, request: Callable[[bool], T], what: str) -> T:
        try:
            return retried(request, what)
        except TransientError as error:
            raise StoreError(
                f"The store {self.address} does not answer: {what} failed again and again, the last time with "
                f"{type(error.cause).__name__}: {error}. Nothing was lost; run again when it is back."
            ) from error.cause

    @contextlib.contextmanager
    def _missing(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise MissingArtifactError(
                f"{key} is not in the store {self.address}. Check the reference and the store's address."
            ) from None
