"""Amazon S3 and compatible servers such as MinIO: create-only by `If-None-Match`, bytes verified both ways."""

import base64
import contextlib
import hashlib
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

import botocore.exceptions as client_errors
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import get_session

from gatehouse.errors import StoreError
from gatehouse.store.objects.base import Stat
from gatehouse.store.objects.retry import TransientError, retried

_PART = 8 << 20
_MOST_PARTS = 10_000
_LARGEST_COPY = 5 << 30
_PARTS_AT_ONCE = 8
_CHUNK = 1 << 20
_DESCRIPTIONS = create_loader()  # botocore's description files of S3, read once per process.
_CONFIGURATION = Config(
    # The caller retries requests, because it knows what a lost answer means.
    retries={"total_max_attempts": 1},
    max_pool_connections=32,
    connect_timeout=10,
    read_timeout=60,
)
_WRITER, _SHA256 = "gatehouse-writer", "gatehouse-sha256"
_TRANSIENT_STATUS = (408, 409, 429, 500, 502, 503, 504)
_TRANSIENT_CODES = ("SlowDown", "RequestTimeout", "BadDigest", "InternalError", "XAmzContentChecksumMismatch")
_CUT_OFF = (
    client_errors.HTTPClientError,
    client_errors.ConnectionError,
    client_errors.IncompleteReadError,
    client_errors.ChecksumError,
    client_errors.FlexibleChecksumError,
    ConnectionError,
    TimeoutError,
)
_NO_CREDENTIALS = (
    client_errors.NoCredentialsError,
    client_errors.PartialCredentialsError,
    client_errors.ProfileNotFound,
)


class S3Bucket:
    """`s3://<bucket>/<prefix>`. Endpoint and credentials come from the environment or profile, as for every S3 client.

    An object's metadata has a mark of its writer and the digest of its bytes. The mark serves as the generation,
    because S3 itself does not distinguish two objects with the same bytes written in the same second. S3 cannot delete
    by generation: the generation is compared just before, and between the two steps only the writer's lease protects
    its key.
    """

    def __init__(self, address: str) -> None:
        """Open the place that `address` names, without a request to the server.

        Raises:
            StoreError: if the address names no bucket.
        """
        self._bucket, _, prefix = address.removeprefix("s3://").partition("/")
        if not self._bucket:
            raise StoreError(f"{address!r} names no bucket: expected s3://<bucket>/<folder>.")
        self.address = address.rstrip("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        session = get_session()
        session.register_component("data_loader", _DESCRIPTIONS)
        with self._explained():
            self._client: Any = session.create_client("s3", config=_CONFIGURATION)
        self._sending = BoundedSemaphore(_PARTS_AT_ONCE)
        self._found = False

    def _ask(self, request: str, key: str, **options: Any) -> Any:
        with self._explained():
            return getattr(self._client, request)(Bucket=self._bucket, Key=self._prefix + key, **options)

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` if it does not exist. A file longer than one part is sent in parts, several at once."""
        if isinstance(content, Path) and content.stat().st_size <= _PART:
            content = content.read_bytes()
        try:
            if isinstance(content, Path):
                self._create_in_parts(key, content, writer)
            else:
                self._create_at_once(key, content, writer)
        except FileExistsError:
            return False
        return True

    def _create_at_once(self, key: str, data: bytes, writer: str) -> None:
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        mark = {_WRITER: writer, _SHA256: hashlib.sha256(data).hexdigest()}
        content_md5 = base64.b64encode(md5).decode()
        with self._sending:
            told = self._ask("put_object", key, Body=data, IfNoneMatch="*", ContentMD5=content_md5, Metadata=mark)
        if _differs(told, md5) and not self._intact(key):
            self._ask("delete_object", key)
            raise TransientError(OSError("the server stored other bytes than were sent"))

    def _intact(self, key: str) -> bool:
        """Whether the server holds the bytes that were sent. Its tag is not enough: not every server uses the MD5."""
        try:
            self.read(key)
        except TransientError:
            return False
        return True

    def _create_in_parts(self, key: str, path: Path, writer: str) -> None:
        with open(path, "rb") as stream:
            mark = {_WRITER: writer, _SHA256: hashlib.file_digest(stream, "sha256").hexdigest()}
        size = path.stat().st_size
        length = max(_PART, -(-size // _MOST_PARTS))
        upload = self._ask("create_multipart_upload", key, Metadata=mark)["UploadId"]

        def send(number: int) -> dict[str, Any]:
            return {"PartNumber": number, "ETag": self._send_part(key, path, upload, number, length)}

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
                parts = list(pool.map(send, range(1, -(-size // length) + 1)))
            whole = {"Parts": parts}
            self._ask("complete_multipart_upload", key, UploadId=upload, MultipartUpload=whole, IfNoneMatch="*")
        except BaseException:
            with contextlib.suppress(Exception):
                self._ask("abort_multipart_upload", key, UploadId=upload)
            raise

    def _send_part(self, key: str, path: Path, upload: str, number: int, length: int) -> str:
        def attempt(again: bool) -> str:
            # The semaphore limits the parts in memory, however many files are sent at once.
            with self._sending, open(path, "rb") as stream:
                stream.seek((number - 1) * length)
                data = stream.read(length)
                md5 = hashlib.md5(data, usedforsecurity=False).digest()
                options = {"ContentMD5": base64.b64encode(md5).decode(), "UploadId": upload, "PartNumber": number}
                told = self._ask("upload_part", key, Body=data, **options)
            if _differs(told, md5):
                raise TransientError(OSError("the server received other bytes than were sent"))
            return str(told["ETag"])

        return retried(attempt, f"sending part {number} of {key}")

    def wrote(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Whether `key` carries the mark of `writer`."""
        try:
            return bool(self._ask("head_object", key)["Metadata"].get(_WRITER) == writer)
        except FileNotFoundError:
            return False

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        answer = self._ask("get_object", key)
        with open(target, "xb") as file, self._explained(), contextlib.closing(answer["Body"]) as body:
            for chunk in body.iter_chunks(_CHUNK):
                file.write(chunk)

    def read(self, key: str) -> bytes:
        """The bytes of `key`, verified against the digest that its writer stored.

        Raises:
            FileNotFoundError: if there is no such key.
            TransientError: if the bytes do not match, or another attempt may succeed.
        """
        answer = self._ask("get_object", key)
        with self._explained(), contextlib.closing(answer["Body"]) as body:
            data: bytes = body.read()
        wanted = answer["Metadata"].get(_SHA256)
        if wanted and hashlib.sha256(data).hexdigest() != wanted:
            raise TransientError(OSError("other bytes arrived than were written"))
        return data

    def stat(self, key: str) -> Stat | None:
        """Length, writer's mark and time of `key`."""
        try:
            found = self._ask("head_object", key)
        except FileNotFoundError:
            self._require_bucket()
            return None
        modified = found["LastModified"].timestamp()
        generation = found["Metadata"].get(_WRITER) or f"{found['ETag']}-{modified}"
        return Stat(int(found["ContentLength"]), generation, modified)

    def _require_bucket(self) -> None:
        """Check once that the bucket exists, because HEAD answers the same for a missing key and a missing bucket."""
        if not self._found:
            try:
                with self._explained():
                    self._client.head_bucket(Bucket=self._bucket)
            except FileNotFoundError as error:
                raise self._no_bucket() from error
            self._found = True

    def renew(self, key: str) -> bool:
        """Copy `key` onto itself with a new mark."""
        try:
            found = self._ask("head_object", key)
            mark = found["Metadata"] | {_WRITER: uuid.uuid4().hex}
            source = {"Bucket": self._bucket, "Key": self._prefix + key}
            if int(found["ContentLength"]) > _LARGEST_COPY:
                self._copy_in_parts(key, source, int(found["ContentLength"]), mark)
            else:
                options = {"CopySourceIfMatch": found["ETag"], "MetadataDirective": "REPLACE", "Metadata": mark}
                self._ask("copy_object", key, CopySource=source, **options)
        except (FileNotFoundError, FileExistsError):
            return False
        return True

    def _copy_in_parts(self, key: str, source: dict[str, str], size: int, mark: dict[str, str]) -> None:
        """Copy an object that is too large for one request."""
        upload = self._ask("create_multipart_upload", key, Metadata=mark)["UploadId"]
        parts = []
        for number, start in enumerate(range(0, size, _LARGEST_COPY), start=1):
            span = f"bytes={start}-{min(start + _LARGEST_COPY, size) - 1}"
            options = {"CopySource": source, "CopySourceRange": span, "UploadId": upload, "PartNumber": number}
            told = self._ask("upload_part_copy", key, **options)
            parts.append({"PartNumber": number, "ETag": told["CopyPartResult"]["ETag"]})
        self._ask("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it still has this generation."""
        found = self.stat(key)
        if found is None or found.generation != generation:
            return False
        self._ask("delete_object", key)
        return True

    def list(self, prefix: str) -> Iterator[str]:
        """Keys below the folder `prefix`."""
        for page in self._pages(prefix, ""):
            for item in page.get("Contents", ()):
                yield item["Key"].removeprefix(self._prefix)

    def folders(self, prefix: str) -> Iterator[str]:
        """Names of the folders directly below `prefix`."""
        for page in self._pages(prefix, "/"):
            for item in page.get("CommonPrefixes", ()):
                yield item["Prefix"].rstrip("/").rsplit("/", 1)[-1]

    def _pages(self, prefix: str, delimiter: str) -> Iterator[Any]:
        start = self._prefix + (f"{prefix.strip('/')}/" if prefix else "")
        options = {"Bucket": self._bucket, "Prefix": start, "Delimiter": delimiter}
        while True:
            try:
                with self._explained():
                    page = self._client.list_objects_v2(**options)
            except FileNotFoundError as error:
                raise self._no_bucket() from error
            yield page
            if not page.get("IsTruncated"):
                return
            options["ContinuationToken"] = page["NextContinuationToken"]

    def _no_bucket(self) -> StoreError:
        return StoreError(f"{self.address}: there is no bucket {self._bucket}. Create it, or correct --store.")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn the client's errors into ours; FileNotFoundError and FileExistsError are about the key."""
        try:
            yield
        except Exception as error:
            if isinstance(error, client_errors.ClientError):
                raise self._meaning(error) from error
            if isinstance(error, _NO_CREDENTIALS):
                raise StoreError(
                    f"{self.address}: no credentials were found ({error}). Set AWS_ACCESS_KEY_ID and "
                    "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role."
                ) from error
            if isinstance(error, _CUT_OFF):
                raise TransientError(error) from error
            if isinstance(error, (client_errors.BotoCoreError, ValueError)):
                raise StoreError(f"{self.address}: {error}. Correct the address, or the settings of S3.") from error
            raise

    def _meaning(self, error: client_errors.ClientError) -> Exception:
        status = error.response["ResponseMetadata"]["HTTPStatusCode"]
        code = error.response["Error"]["Code"]
        if code == "NoSuchBucket":
            return self._no_bucket()
        if status == 404:
            return FileNotFoundError(str(error))
        if status == 412:
            return FileExistsError(str(error))
        if status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES:
            return TransientError(error)
        if status in (401, 403):
            return StoreError(
                f"{self.address}: access was refused ({error}). Give the account of this process the permission to "
                "list, read, write and delete there, or choose another store with --store."
            )
        return StoreError(f"{self.address}: the server answered {status}: {error}.")


def _differs(told: Mapping[str, Any], md5: bytes) -> bool:
    """Whether the server's tag shows that it has other bytes. With encryption by a key, the tag shows nothing."""
    keyed = told.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in told
    return not keyed and str(told.get("ETag", "")).strip('"') != md5.hex()
