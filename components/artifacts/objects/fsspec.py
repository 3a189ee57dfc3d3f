"""S3 and whatever else fsspec reaches: create-only where the protocol has it, refused where it has not."""

import errno
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec

from gatehouse.components.artifacts.objects.base import Stat
from gatehouse.components.artifacts.objects.retry import TransientError
from gatehouse.errors import StoreError

_CHUNK = 8 << 20
_PER_FILE = 4
_WRITER = "gatehouse-writer"
_TRANSIENT = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Reduce your request rate", "Busy")


class FsspecBucket:
    """`<protocol>://<path>`. Endpoint and credentials come from where the protocol's own client looks for them.

    S3 deletes without conditions: a generation is compared just before. What closes the gap is the writers' lease.
    """

    def __init__(self, address: str) -> None:
        """Open the place that `address` names.

        Raises:
            StoreError: if no file system serves it, or the one that does overwrites what another wrote.
        """
        self.address = address.rstrip("/")
        self._protocol = address.partition("://")[0]
        options = {"use_listings_cache": False, "skip_instance_cache": True} if self._protocol == "s3" else {}
        try:
            self._files: Any = fsspec.filesystem(self._protocol, **options)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"No object store serves {address!r}: {error}. Expected a directory, gs://, s3://, or another protocol "
                "of fsspec whose package is installed."
            ) from error
        self._root = self.address if self._protocol == "memory" else self.address.partition("://")[2]
        if not self._root.strip("/"):
            raise StoreError(f"{address!r} names no bucket: expected {self._protocol}://<bucket>/<folder>.")
        if self._protocol != "s3":
            self._require_exclusive_create()

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _require_exclusive_create(self) -> None:
        probe = f"tmp/probe-{uuid.uuid4().hex}"
        first = self.create(probe, b"1", "")
        second = self.create(probe, b"2", "")
        held = self.read(probe)
        self._files.rm_file(self._path(probe))
        if not first or second or held != b"1":
            raise StoreError(
                f"{self.address}: the file system {self._protocol!r} overwrites silently what another wrote, so two "
                "writers could destroy each other's work. Use gs://, s3:// or a directory."
            )

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` where it is not there."""
        mark = {"Metadata": {_WRITER: writer}} if self._protocol == "s3" else {}
        path = self._path(key)
        with self._explained():
            try:
                if isinstance(content, bytes):
                    self._files.pipe_file(path, content, mode="create", **mark)
                elif self._protocol == "s3":
                    self._files.put_file(
                        str(content), path, mode="create", chunksize=_CHUNK, max_concurrency=_PER_FILE, **mark
                    )
                else:
                    self._files.pipe_file(path, content.read_bytes(), mode="create")
            except FileExistsError:
                return False
        return True

    def writer_of(self, key: str) -> str:
        """The mark that `create` left on `key`; only S3 keeps one."""
        if self._protocol != "s3":
            return ""
        with self._explained():
            return str(self._files.metadata(self._path(key), refresh=True).get(_WRITER.replace("-", "_"), ""))

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        with self._explained():
            self._files.get_file(self._path(key), str(target))
            found, wanted = target.stat().st_size, int(self._files.info(self._path(key))["size"])
        if found != wanted:
            raise TransientError(OSError(errno.EIO, f"{found} of {wanted} bytes arrived"))

    def read(self, key: str) -> bytes:
        """The bytes of `key`."""
        with self._explained():
            data: bytes = self._files.cat_file(self._path(key))
        return data

    def stat(self, key: str) -> Stat | None:
        """Length, tag with time, and time of `key`."""
        with self._explained():
            try:
                found = self._files.info(self._path(key))
            except FileNotFoundError:
                return None
        if found["type"] != "file":
            return None
        moment = found.get("LastModified") or found.get("created") or found.get("mtime") or found.get("last_modified")
        modified = moment.timestamp() if isinstance(moment, datetime) else float(moment or 0.0)
        tag = found.get("ETag") or found.get("etag") or ""
        return Stat(int(found["size"]), f"{tag}-{modified!r}", modified)

    def renew(self, key: str) -> bool:
        """Write `key` onto itself."""
        path = self._path(key)
        with self._explained():
            try:
                if self._protocol == "s3":
                    bucket, name, _ = self._files.split_path(path)
                    source = {"Bucket": bucket, "Key": name}
                    mark = {_WRITER: uuid.uuid4().hex}
                    self._files.call_s3(
                        "copy_object",
                        Bucket=bucket,
                        Key=name,
                        CopySource=source,
                        MetadataDirective="REPLACE",
                        Metadata=mark,
                    )
                else:
                    self._files.pipe_file(path, self._files.cat_file(path))
            except FileNotFoundError:
                return False
        return True

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if this is its generation just before."""
        found = self.stat(key)
        if found is None or found.generation != generation:
            return False
        with self._explained():
            try:
                self._files.rm_file(self._path(key))
            except FileNotFoundError:
                return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`."""
        with self._explained():
            try:
                found = self._files.find(self._path(prefix) if prefix else self._root)
            except FileNotFoundError:
                found = []
        start = self._stripped(self._root) + "/"
        yield from sorted(self._stripped(path).removeprefix(start) for path in found)

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""
        with self._explained():
            try:
                found = self._files.ls(self._path(prefix) if prefix else self._root, detail=True)
            except FileNotFoundError:
                found = []
        yield from sorted(item["name"].rstrip("/").rsplit("/", 1)[-1] for item in found if item["type"] == "directory")

    def _stripped(self, path: str) -> str:
        return str(self._files._strip_protocol(path)).strip("/")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the client's errors into ours; FileNotFoundError and FileExistsError pass."""
        try:
            yield
        except (FileExistsError, TransientError):
            raise
        except FileNotFoundError as error:
            if "bucket" in str(error).lower():
                raise StoreError(f"{self.address}: there is no such bucket. Create it, or correct --store.") from error
            raise
        except PermissionError as error:
            raise StoreError(
                f"{self.address}: access was refused ({error}). Give the account of this process leave to list, read "
                "and write there, or choose another store with --store."
            ) from error
        except Exception as error:
            if _credentials(error):
                raise StoreError(
                    f"{self.address}: no credentials were found ({error}). Set those of {self._protocol} in the "
                    "environment, e.g. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
                ) from error
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise StoreError(f"{self.address}: the disk is full. Nothing was published.") from error
            if _transient(error):
                raise TransientError(error) from error
            raise StoreError(f"{self.address}: {type(error).__name__}: {error}.") from error


def _credentials(error: BaseException) -> bool:
    return type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "TokenRetrievalError")


def _transient(error: BaseException) -> bool:
    if isinstance(error, (ConnectionError, TimeoutError)) or "Timeout" in type(error).__name__:
        return True
    named = type(error).__module__.split(".")[0] in ("botocore", "aiohttp", "urllib3", "requests", "aiobotocore")
    connection = named and ("Connection" in type(error).__name__ or "Payload" in type(error).__name__)
    return connection or any(word in str(error) for word in _TRANSIENT)
