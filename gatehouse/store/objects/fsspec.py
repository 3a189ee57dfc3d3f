"""Other fsspec file systems, if they refuse to create a file that exists."""

import contextlib
import errno
import hashlib
import io
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import fsspec

from gatehouse.errors import StoreError
from gatehouse.store.objects.base import Stat
from gatehouse.store.objects.retry import TransientError

_CHUNK = 8 << 20


class FsspecBucket:
    """`<protocol>://<path>`. Endpoint and credentials come from where the protocol's own client looks for them.

    fsspec cannot delete by generation: the generation is compared just before, and between the two steps only the
    writer's lease protects its key. fsspec stores no mark of the writer either: after a lost answer, bytes are
    compared.
    """

    def __init__(self, address: str) -> None:
        """Open the place that `address` names, and test whether it refuses to create a file twice.

        Raises:
            StoreError: if no file system supports it, or if the file system overwrites existing files.
        """
        self.address = address.rstrip("/")
        self._protocol, _, path = address.partition("://")
        try:
            self._files: Any = fsspec.filesystem(self._protocol, use_listings_cache=False, skip_instance_cache=True)
        except (ValueError, ImportError) as error:
            raise StoreError(
                f"No object store serves {address!r}: {error}. Expected a directory, gs://, s3://, or another protocol "
                "of fsspec whose package is installed."
            ) from error
        if not path.strip("/"):
            raise StoreError(f"{address!r} names no folder: expected {self._protocol}://<folder>.")
        with self._explained():
            self._root = str(self._files._strip_protocol(self.address)).rstrip("/")
        self._require_exclusive_create()

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}" if key else self._root

    def _require_exclusive_create(self) -> None:
        probe = f"tmp/probe-{uuid.uuid4().hex}"
        try:
            first, second = self.create(probe, b"1", ""), self.create(probe, b"2", "")
            refuses = first and not second and self.read(probe) == b"1"
        except TransientError as error:
            raise StoreError(f"The store {self.address} does not answer: {error}.") from error
        finally:
            with self._explained():
                if self._files.exists(self._path(probe)):
                    self._files.rm_file(self._path(probe))
        if not refuses:
            raise StoreError(
                f"{self.address}: the file system {self._protocol!r} silently overwrites existing files, so two "
                "writers could destroy each other's work. Use gs://, s3:// or a directory."
            )

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` if it does not exist, streamed in chunks."""
        path = self._path(key)
        opened = False
        with self._explained():
            try:
                self._files.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
                # pipe_file(mode="create") is not enough: by default it checks first, and then overwrites.
                with self._files.open(path, "xb", block_size=_CHUNK) as target, _reader(content) as source:
                    opened = True
                    shutil.copyfileobj(source, target, _CHUNK)
            except FileExistsError:
                return False
            except BaseException:
                if opened:
                    self._discard_half(path, content)
                raise
        return True

    def _discard_half(self, path: str, content: bytes | Path) -> None:
        """Remove a file that holds only the beginning of `content`: our own interrupted write."""
        with contextlib.suppress(FileNotFoundError):
            with self._files.open(path, "rb") as held, _reader(content) as meant:
                while chunk := held.read(_CHUNK):
                    if chunk != meant.read(len(chunk)):
                        return
                if not meant.read(1):
                    return
            self._files.rm_file(path)

    def wrote(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Whether the bytes of `key` are these."""
        with self._explained():
            try:
                with self._files.open(self._path(key), "rb") as held:
                    found = hashlib.file_digest(held, "sha256").digest()
            except FileNotFoundError:
                return False
        with _reader(content) as source:
            return found == hashlib.file_digest(source, "sha256").digest()

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        with self._explained(), self._files.open(self._path(key), "rb") as source, open(target, "xb") as file:
            shutil.copyfileobj(source, file, _CHUNK)

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
        named = (found.get(name) for name in ("LastModified", "last_modified", "mtime", "created"))
        moment = next((each for each in named if each is not None), 0.0)
        modified = moment.timestamp() if isinstance(moment, datetime) else float(moment)
        tag = found.get("ETag") or found.get("etag") or ""
        return Stat(int(found["size"]), f"{tag}-{modified!r}", modified)

    def renew(self, key: str) -> bool:
        """Put a copy of `key` in its place."""
        path, copy = self._path(key), self._path(f"tmp/renewed-{uuid.uuid4().hex}")
        with self._explained():
            try:
                self._files.makedirs(copy.rsplit("/", 1)[0], exist_ok=True)
                self._files.cp_file(path, copy)
                self._files.mv(copy, path)
            except FileNotFoundError:
                return False
        return True

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it still has this generation."""
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
        """Keys below the folder `prefix`. fsspec's `find` is not enough: it treats a folder without access as empty."""
        pending = [self._path(prefix)]
        while pending:
            folder = pending.pop()
            for item in self._listed(folder):
                path = str(item["name"]).rstrip("/")
                if item["type"] == "directory":
                    pending.append(path)
                elif path != folder:
                    yield path.removeprefix(f"{self._root}/")

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""
        found = self._listed(self._path(prefix))
        yield from (item["name"].rstrip("/").rsplit("/", 1)[-1] for item in found if item["type"] == "directory")

    def _listed(self, folder: str) -> Sequence[dict[str, Any]]:
        with self._explained():
            try:
                found = self._files.ls(folder, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
        return [item for item in found if item["type"] != "directory" or item["name"].rstrip("/") != folder]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the client's errors into ours; FileNotFoundError and FileExistsError are about the key."""
        try:
            yield
        except (FileExistsError, FileNotFoundError):
            raise
        except PermissionError as error:
            raise StoreError(
                f"{self.address}: access was refused ({error}). Give the account of this process the permission to "
                "list, read, write and delete there, or choose another store with --store."
            ) from error
        except (ConnectionError, TimeoutError) as error:
            raise TransientError(error) from error
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StoreError(f"{self.address}: the disk is full. Nothing was published.") from error
            raise TransientError(error) from error
        except Exception as error:
            raise StoreError(f"{self.address}: {type(error).__name__}: {error}.") from error


def _reader(content: bytes | Path) -> io.BytesIO | io.BufferedReader:
    return io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb")
