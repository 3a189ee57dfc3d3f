"""A store on a network: retries, lost answers, parallel requests, and a cache on this machine.

Each protocol implements `Bucket`; everything else is the same for all protocols.
"""

import contextlib
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Protocol, TypeVar

from gatehouse.errors import CorruptArtifactError, MissingArtifactError, StoreError
from gatehouse.store.canonical import sha256_of
from gatehouse.store.objects.base import Stat, TransientError, retried, side_by_side
from gatehouse.store.objects.cache import BlobCache, cache_folder, digest_of_blob

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
