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
from gatehouse.store.objects.base import Stat
from gatehouse.store.objects.retry import FIRST_WAIT, LONGEST_WAIT, TransientError

_TIMEOUT = (10, 60)
_CHUNK = 8 << 20
_TYPE = "application/octet-stream"
_WRITER = "gatehouse-writer"
_TRANSIENT = (408, 429, 500, 502, 503, 504)
_CHUNK_RETRY = DEFAULT_RETRY.with_delay(initial=FIRST_WAIT, maximum=LONGEST_WAIT).with_timeout(120.0)


class GcsBucket:
    """`gs://<bucket>/<prefix>`. Credentials are the environment's; `STORAGE_EMULATOR_HOST` names another server."""

    def __init__(self, address: str) -> None:
        """Open the place that `address` names, without a request to the server.

        Raises:
            StoreError: if the address names no bucket, or there are no credentials.
        """
        name, _, prefix = address.removeprefix("gs://").partition("/")
        if not name:
            raise StoreError(f"{address!r} names no bucket: expected gs://<bucket>/<folder>.")
        self.address = address.rstrip("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._found = False
        with self._explained():
            self._bucket = Client().bucket(name)

    def _blob(self, key: str, chunk: int | None = None) -> Any:
        return self._bucket.blob(self._prefix + key, chunk_size=chunk)

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` if no generation of it exists. A file longer than a chunk is sent chunk by chunk.

        Raises:
            TransientError: if another attempt may succeed.
        """
        if isinstance(content, Path) and content.stat().st_size <= _CHUNK:
            content = content.read_bytes()
        blob = self._blob(key, _CHUNK if isinstance(content, Path) else None)
        blob.metadata = {_WRITER: writer}
        options = {"if_generation_match": 0, "checksum": "crc32c", "timeout": _TIMEOUT, "retry": None}
        with self._explained():
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
                self._discard(key, writer)
                raise
        return True

    def _discard(self, key: str, writer: str) -> None:
        """Remove the object that we created, because the server received other bytes than we sent."""
        blob = self._bucket.get_blob(self._prefix + key, timeout=_TIMEOUT, retry=None)
        if blob is not None and (blob.metadata or {}).get(_WRITER) == writer:
            self.delete(key, str(blob.generation))

    def wrote(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Whether `key` carries the mark of `writer`."""
        with self._explained():
            blob = self._bucket.get_blob(self._prefix + key, timeout=_TIMEOUT, retry=None)
        return blob is not None and (blob.metadata or {}).get(_WRITER) == writer

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        with self._explained(key):
            self._blob(key).download_to_filename(str(target), timeout=_TIMEOUT, retry=None, checksum="crc32c")

    def read(self, key: str) -> bytes:
        """The bytes of `key`."""
        with self._explained(key):
            data: bytes = self._blob(key).download_as_bytes(timeout=_TIMEOUT, retry=None, checksum="crc32c")
        return data

    def stat(self, key: str) -> Stat | None:
        """Length, generation and creation time of `key`."""
        with self._explained():
            blob = self._bucket.get_blob(self._prefix + key, timeout=_TIMEOUT, retry=None)
        if blob is None:
            self._require_bucket()
            return None
        return Stat(int(blob.size), str(blob.generation), blob.time_created.timestamp())

    def renew(self, key: str) -> bool:
        """Rewrite `key` onto itself."""
        with self._explained():
            blob = self._bucket.get_blob(self._prefix + key, timeout=_TIMEOUT, retry=None)
            if blob is None:
                return False
            try:
                token: str | None = None
                while True:
                    token, _, _ = self._blob(key).rewrite(
                        blob, token=token, if_generation_match=blob.generation, timeout=_TIMEOUT, retry=None
                    )
                    if token is None:
                        return True
            except (exceptions.PreconditionFailed, NotFound):
                return False

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if this is its generation."""
        with self._explained():
            try:
                self._blob(key).delete(if_generation_match=int(generation), timeout=_TIMEOUT, retry=None)
            except (exceptions.PreconditionFailed, NotFound):
                return False
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`."""
        start = self._prefix + (f"{prefix.strip('/')}/" if prefix else "")
        with self._explained():
            found = [blob.name for blob in self._bucket.list_blobs(prefix=start, timeout=_TIMEOUT, retry=None)]
        yield from (name.removeprefix(self._prefix) for name in found)

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""
        start = self._prefix + (f"{prefix.strip('/')}/" if prefix else "")
        with self._explained():
            pages = self._bucket.list_blobs(prefix=start, delimiter="/", timeout=_TIMEOUT, retry=None)
            found = {name for page in pages.pages for name in page.prefixes}
        yield from (name.removeprefix(start).rstrip("/") for name in found)

    def _require_bucket(self) -> None:
        """Check once that the bucket exists: the server answers the same for a missing key and a missing bucket."""
        if self._found:
            return
        # By listing: an account with access to objects may list them, but can seldom read the bucket's settings.
        with self._explained():
            list(self._bucket.list_blobs(prefix=self._prefix, max_results=1, timeout=_TIMEOUT, retry=None))
        self._found = True

    @contextmanager
    def _explained(self, key: str = "") -> Iterator[None]:
        """Turn the client's errors into ours; a missing `key` becomes FileNotFoundError."""
        try:
            yield
        except (StoreError, TransientError):
            raise
        except NotFound:
            if key:
                raise FileNotFoundError(key) from None
            raise StoreError(f"{self.address}: there is no such bucket. Create it, or correct --store.") from None
        except (exceptions.Forbidden, exceptions.Unauthorized) as error:
            raise StoreError(
                f"{self.address}: access was refused ({error.message}). Give the account of this process the role "
                "Storage Object User on the bucket, or choose another store with --store."
            ) from error
        except auth_exceptions.DefaultCredentialsError as error:
            raise StoreError(
                f"{self.address}: no Google credentials were found. Run `gcloud auth application-default login`, set "
                "GOOGLE_APPLICATION_CREDENTIALS, or run with a workload identity."
            ) from error
        except (
            DataCorruption,
            requests.ConnectionError,
            requests.Timeout,
            requests.exceptions.ChunkedEncodingError,
        ) as error:
            raise TransientError(error) from error
        except auth_exceptions.TransportError as error:
            raise TransientError(error) from error
        except (exceptions.GoogleAPICallError, InvalidResponse) as error:
            code = error.code if isinstance(error, exceptions.GoogleAPICallError) else error.response.status_code
            if code in _TRANSIENT:
                raise TransientError(error) from error
            raise StoreError(f"{self.address}: the server answered {code}: {error}.") from error
