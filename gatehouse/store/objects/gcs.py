"""Google Cloud Storage: create-only by generation precondition, checksums (CRC32C) verified both ways."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
from google.api_core import exceptions
from google.auth import exceptions as auth_exceptions
from google.cloud.exceptions import NotFound
from google.cloud.storage import Client
from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
from google.cloud.storage.retry import DEFAULT_RETRY

from gatehouse.errors import StoreError
from gatehouse.store.objects.base import FIRST_WAIT, LONGEST_WAIT, Stat, TransientError

_CHUNK = 8 << 20
_TYPE = "application/octet-stream"
_WRITER = "gatehouse-writer"
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_CUT_OFF = (
    DataCorruption,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    auth_exceptions.TransportError,
)
_ONCE: dict[str, Any] = {"timeout": (10, 60), "retry": None}
"""The caller retries requests, because it knows what a lost answer means."""
_CHUNK_RETRY = DEFAULT_RETRY.with_delay(initial=FIRST_WAIT, maximum=LONGEST_WAIT).with_timeout(120.0)


class GcsBucket:
    """`gs://<bucket>/<prefix>`. Credentials are the environment's; `STORAGE_EMULATOR_HOST` names another server."""

    def __init__(self, address: str) -> None:
        """Open the place at `address`, without a request to the server. Raises StoreError without credentials."""
        name, _, prefix = address.removeprefix("gs://").partition("/")
        self.address = address.rstrip("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._exists = False
        with self._translated():
            self._bucket = Client().bucket(name)

    def _metadata(self, key: str) -> Any:
        """The object with its metadata, or None."""
        with self._translated():
            return self._bucket.get_blob(self._prefix + key, **_ONCE)

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` if no generation of it exists. A file longer than a chunk is sent chunk by chunk."""
        if isinstance(content, Path) and content.stat().st_size <= _CHUNK:
            content = content.read_bytes()
        blob = self._bucket.blob(self._prefix + key, chunk_size=_CHUNK if isinstance(content, Path) else None)
        blob.metadata = {_WRITER: writer}
        options = _ONCE | {"if_generation_match": 0, "checksum": "crc32c"}
        with self._translated():
            try:
                if isinstance(content, Path):
                    # When a chunk is interrupted, the client asks the server what has arrived, and sends the rest.
                    blob.upload_from_filename(str(content), _TYPE, **options | {"retry": _CHUNK_RETRY})
                else:
                    blob.upload_from_string(content, _TYPE, **options)
            except exceptions.PreconditionFailed:
                return False
            except (NotFound, exceptions.BadRequest) as error:
                # The server lost the upload, or received other bytes than announced. Begin again.
                self._require_bucket()
                raise TransientError(error) from error
            except DataCorruption:
                stored = self._metadata(key)
                if stored is not None and (stored.metadata or {}).get(_WRITER) == writer:
                    self.delete(key, str(stored.generation))
                raise
        return True

    def wrote(self, key: str, writer: str) -> bool:
        """Whether `key` carries the mark of `writer`."""
        blob = self._metadata(key)
        return blob is not None and (blob.metadata or {}).get(_WRITER) == writer

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        with self._translated(key):
            self._bucket.blob(self._prefix + key).download_to_filename(str(target), checksum="crc32c", **_ONCE)

    def read(self, key: str) -> bytes:
        """The bytes of `key`."""
        with self._translated(key):
            return bytes(self._bucket.blob(self._prefix + key).download_as_bytes(checksum="crc32c", **_ONCE))

    def stat(self, key: str) -> Stat | None:
        """Length, generation and creation time of `key`."""
        blob = self._metadata(key)
        if blob is None:
            self._require_bucket()
            return None
        return Stat(int(blob.size), str(blob.generation), blob.time_created.timestamp())

    def renew(self, key: str) -> bool:
        """Rewrite `key` onto itself."""
        blob = self._metadata(key)
        if blob is None:
            return False
        target, token = self._bucket.blob(self._prefix + key), None
        with self._translated():
            try:
                while True:
                    token, _, _ = target.rewrite(blob, token=token, if_generation_match=blob.generation, **_ONCE)
                    if token is None:
                        return True
            except (exceptions.PreconditionFailed, NotFound):
                return False

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if this is its generation."""
        with self._translated():
            try:
                self._bucket.blob(self._prefix + key).delete(if_generation_match=int(generation), **_ONCE)
            except (exceptions.PreconditionFailed, NotFound):
                return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`."""
        with self._translated():
            names = [blob.name for blob in self._bucket.list_blobs(prefix=self._folder(prefix), **_ONCE)]
        yield from (name.removeprefix(self._prefix) for name in names)

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""
        start = self._folder(prefix)
        with self._translated():
            pages = self._bucket.list_blobs(prefix=start, delimiter="/", **_ONCE).pages
            names = {name for page in pages for name in page.prefixes}
        yield from (name.removeprefix(start).rstrip("/") for name in names)

    def _folder(self, prefix: str) -> str:
        return self._prefix + (f"{prefix.strip('/')}/" if prefix else "")

    def _require_bucket(self) -> None:
        """Check once that the bucket exists: the server answers the same for a missing key and a missing bucket."""
        if self._exists:
            return
        # By listing: an account with access to objects may list them, but can seldom read the bucket's settings.
        with self._translated():
            list(self._bucket.list_blobs(prefix=self._prefix, max_results=1, **_ONCE))
        self._exists = True

    @contextmanager
    def _translated(self, key: str = "") -> Iterator[None]:
        """Turn the client's errors into ours; a missing `key` becomes FileNotFoundError."""
        try:
            yield
        except (StoreError, TransientError):
            raise
        except NotFound:
            if key:
                raise FileNotFoundError(key) from None
            raise StoreError(f"{self.address}: there is no such bucket. Create it, or correct the address.") from None
        except (exceptions.Forbidden, exceptions.Unauthorized) as error:
            raise StoreError(
                f"{self.address}: access was refused ({error.message}). Give the account of this process the role "
                "Storage Object User on the bucket."
            ) from error
        except auth_exceptions.DefaultCredentialsError as error:
            raise StoreError(
                f"{self.address}: no Google credentials were found. Run `gcloud auth application-default login`, set "
                "GOOGLE_APPLICATION_CREDENTIALS, or run with a workload identity."
            ) from error
        except _CUT_OFF as error:
            raise TransientError(error) from error
        except (exceptions.GoogleAPICallError, InvalidResponse) as error:
            code = error.code if isinstance(error, exceptions.GoogleAPICallError) else error.response.status_code
            if code in _TRANSIENT:
                raise TransientError(error) from error
            raise StoreError(f"{self.address}: the server answered {code}: {error}.") from error
