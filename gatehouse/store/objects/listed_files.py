"""Parquet files in object stores for DuckDB, read in byte ranges and listed only once.

DuckDB asks for a file's existence and length repeatedly, and opens it several times. Here one listing answers all of
this, so a file costs only its footer and the columns that are read, and unlisted files are never opened.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from fsspec import AbstractFileSystem, filesystem
from fsspec.spec import AbstractBufferedFile

from gatehouse.errors import ConfigurationError

_PROTOCOL = "listed"
_GCS = ("gs", "gcs")
Read = Callable[[int, int], bytes]


class ListedFiles(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A read-only file system of added files; addresses are `listed://<where they are>`."""

    protocol = _PROTOCOL
    cachable = False

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Make the files readable in `connection`."""
        super().__init__()
        self._files: dict[str, tuple[int, Read]] = {}
        connection.register_filesystem(self)

    def add(self, address: str, size: int, read: Read) -> str:
        """Add a file; returns the address under which DuckDB reads it."""
        inside = address.replace("://", "/", 1)
        self._files[inside] = (size, read)
        return f"{_PROTOCOL}://{inside}"

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Name, size and type of a file. Raises FileNotFoundError if it was not added."""
        path = self._strip_protocol(path)
        if path not in self._files:
            raise FileNotFoundError(path)
        return {"name": path, "size": self._files[path][0], "type": "file"}

    def glob(self, path: str, **_: Any) -> list[str]:
        """The added file with exactly this name: names may contain pattern characters."""
        path = self._strip_protocol(path)
        return [path] if path in self._files else []

    def modified(self, path: str) -> datetime:
        """A fixed time: nothing is cached by it."""
        return datetime.fromtimestamp(0, UTC)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        size, read = self._files[self._strip_protocol(path)]
        return _Ranges(self, path, size, read)


class _Ranges(AbstractBufferedFile):  # type: ignore[misc]  # fsspec has no types
    def __init__(self, files: ListedFiles, path: str, size: int, read: Read) -> None:
        self._read_range = read
        super().__init__(files, path, "rb", cache_type="none", size=size)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self._read_range(start, end)


def list_objects(address: str, options: Mapping[str, str]) -> dict[str, tuple[int, Read]]:
    """Length of every object at or below `address`, and a function that reads it, by address.

    Raises ConfigurationError if the store cannot be opened or listed.

    Args:
        address: Address such as `s3://bucket/folder`, `gs://…`, or of any other fsspec protocol.
        options: Options of the file system, besides the environment.
    """
    protocol, _, place = address.partition("://")
    try:
        if protocol in _GCS:
            return _list_gcs(place)
        files = filesystem(protocol, skip_instance_cache=True, use_listings_cache=False, **options)
        objects = files.find(files._strip_protocol(address), detail=True)
    except (OSError, ImportError, ValueError) as error:
        raise ConfigurationError(f"{address} cannot be listed: {error}. Check the address and credentials.") from error

    def reader(path: str) -> Read:
        return lambda start, stop: bytes(files.cat_file(path, start=start, end=stop))

    return {f"{protocol}://{path.lstrip('/')}": (int(info["size"]), reader(path)) for path, info in objects.items()}


def _list_gcs(place: str) -> dict[str, tuple[int, Read]]:
    from google.api_core.exceptions import GoogleAPIError
    from google.auth.exceptions import GoogleAuthError
    from google.cloud.storage import Client

    bucket, _, prefix = place.rstrip("/").partition("/")

    def reader(blob: Any) -> Read:
        return lambda start, stop: bytes(blob.download_as_bytes(start=start, end=stop - 1))

    try:
        blobs = list(Client().list_blobs(bucket, prefix=prefix))
    except (GoogleAPIError, GoogleAuthError) as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    below = [blob for blob in blobs if blob.name == prefix or blob.name.startswith(f"{prefix}/" if prefix else "")]
    return {f"gs://{bucket}/{blob.name}": (int(blob.size), reader(blob)) for blob in below}


def upload(path: Path, address: str, options: Mapping[str, str]) -> None:
    """Write a file to `address`, replacing an existing one. Raises ConfigurationError if it cannot be written."""
    protocol, _, place = address.partition("://")
    try:
        if protocol in _GCS:
            from google.cloud.storage import Client

            bucket, _, name = place.partition("/")
            Client().bucket(bucket).blob(name).upload_from_filename(str(path))
        else:
            filesystem(protocol, skip_instance_cache=True, **options).put_file(str(path), place)
    except (OSError, ImportError, ValueError) as error:
        raise ConfigurationError(f"{address} cannot be written: {error}. Check the address and credentials.") from error
