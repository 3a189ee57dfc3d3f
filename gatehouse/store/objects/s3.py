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
from gatehouse.store.objects.base import Stat, TransientError, retried

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
    by generation: the generation is compared just before.
    """

    def __init__(self, address: str) -> None:
        """Open the place that `address` names, without a request to the server."""
        self._bucket, _, prefix = address.removeprefix("s3://").partition("/")
        self.address = address.rstrip("/")
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        session = get_session()
        session.register_component("data_loader", _DESCRIPTIONS)
        with self._translated():
            self._client: Any = session.create_client("s3", config=_CONFIGURATION)
        self._sending = BoundedSemaphore(_PARTS_AT_ONCE)
        self._exists = False

    def _ask(self, request: str, key: str, **options: Any) -> Any:
        with self._translated():
            return getattr(self._client, request)(Bucket=self._bucket, Key=self._prefix + key, **options)

    def create(self, key: str, content: bytes | Path, writer: str) -> bool:
        """Create `key` if it does not exist. A file longer than one part is sent in parts, several at once."""
        if isinstance(content, Path) and content.stat().st_size <= _PART:
            content = content.read_bytes()
        try:
            if isinstance(content, Path):
                self._create_in_parts(key, content, writer)
            else:
                mark = {_WRITER: writer, _SHA256: hashlib.sha256(content).hexdigest()}
                with self._sending:
                    intact, _ = self._send("put_object", key, content, IfNoneMatch="*", Metadata=mark)
                if not intact and not self._is_intact(key):
                    self._ask("delete_object", key)
                    raise TransientError(OSError("the server stored other bytes than were sent"))
        except FileExistsError:
            return False
        return True

    def _send(self, request: str, key: str, data: bytes, **options: Any) -> tuple[bool, str]:
        """Send bytes. Returns whether the server's tag is their MD5, and the tag.

        With encryption by a key the tag says nothing, and counts as the MD5.
        """
        md5 = hashlib.md5(data, usedforsecurity=False).digest()
        answer: Mapping[str, Any] = self._ask(
            request, key, Body=data, ContentMD5=base64.b64encode(md5).decode(), **options
        )
        keyed = answer.get("ServerSideEncryption", "AES256") != "AES256" or "SSECustomerAlgorithm" in answer
        tag = str(answer.get("ETag", ""))
        return keyed or tag.strip('"') == md5.hex(), tag

    def _is_intact(self, key: str) -> bool:
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
            def attempt(_: bool) -> str:
                # The semaphore limits the parts in memory, however many files are sent at once.
                with self._sending, open(path, "rb") as stream:
                    stream.seek((number - 1) * length)
                    data = stream.read(length)
                    intact, tag = self._send("upload_part", key, data, UploadId=upload, PartNumber=number)
                if not intact:
                    raise TransientError(OSError("the server received other bytes than were sent"))
                return tag

            return {"PartNumber": number, "ETag": retried(attempt, f"sending part {number} of {key}")}

        try:
            with ThreadPoolExecutor(_PARTS_AT_ONCE) as pool:
                parts = list(pool.map(send, range(1, -(-size // length) + 1)))
            whole = {"Parts": parts}
            self._ask("complete_multipart_upload", key, UploadId=upload, MultipartUpload=whole, IfNoneMatch="*")
        except BaseException:
            with contextlib.suppress(Exception):
                self._ask("abort_multipart_upload", key, UploadId=upload)
            raise

    def wrote(self, key: str, writer: str) -> bool:
        """Whether `key` carries the mark of `writer`."""
        try:
            return bool(self._ask("head_object", key)["Metadata"].get(_WRITER) == writer)
        except FileNotFoundError:
            return False

    def fetch(self, key: str, target: Path) -> None:
        """Stream `key` to a file."""
        answer = self._ask("get_object", key)
        with open(target, "xb") as file, self._translated(), contextlib.closing(answer["Body"]) as body:
            for chunk in body.iter_chunks(_CHUNK):
                file.write(chunk)

    def read(self, key: str) -> bytes:
        """The bytes of `key`, verified against the digest that its writer stored; other bytes are a TransientError."""
        answer = self._ask("get_object", key)
        with self._translated(), contextlib.closing(answer["Body"]) as body:
            data: bytes = body.read()
        digest = answer["Metadata"].get(_SHA256)
        if digest and hashlib.sha256(data).hexdigest() != digest:
            raise TransientError(OSError("other bytes arrived than were written"))
        return data

    def stat(self, key: str) -> Stat | None:
        """Length, writer's mark and time of `key`."""
        try:
            head = self._ask("head_object", key)
        except FileNotFoundError:
            self._require_bucket()
            return None
        modified = head["LastModified"].timestamp()
        generation = head["Metadata"].get(_WRITER) or f"{head['ETag']}-{modified}"
        return Stat(int(head["ContentLength"]), generation, modified)

    def _require_bucket(self) -> None:
        """Check once that the bucket exists, because HEAD answers the same for a missing key and a missing bucket."""
        if not self._exists:
            try:
                with self._translated():
                    self._client.head_bucket(Bucket=self._bucket)
            except FileNotFoundError as error:
                raise self._no_bucket() from error
            self._exists = True

    def renew(self, key: str) -> bool:
        """Copy `key` onto itself with a new mark."""
        try:
            head = self._ask("head_object", key)
            mark = head["Metadata"] | {_WRITER: uuid.uuid4().hex}
            source = {"Bucket": self._bucket, "Key": self._prefix + key}
            if int(head["ContentLength"]) > _LARGEST_COPY:
                self._copy_in_parts(key, source, int(head["ContentLength"]), mark)
            else:
                options = {"CopySourceIfMatch": head["ETag"], "MetadataDirective": "REPLACE", "Metadata": mark}
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
            answer = self._ask("upload_part_copy", key, **options)
            parts.append({"PartNumber": number, "ETag": answer["CopyPartResult"]["ETag"]})
        self._ask("complete_multipart_upload", key, UploadId=upload, MultipartUpload={"Parts": parts})

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it still has this generation."""
        stat = self.stat(key)
        if stat is None or stat.generation != generation:
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
        paginator = self._client.get_paginator("list_objects_v2")
        try:
            with self._translated():
                yield from paginator.paginate(Bucket=self._bucket, Prefix=start, Delimiter=delimiter)
        except FileNotFoundError as error:
            raise self._no_bucket() from error

    def _no_bucket(self) -> StoreError:
        return StoreError(f"{self.address}: there is no bucket {self._bucket}. Create it, or correct the address.")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn the client's errors into ours; FileNotFoundError and FileExistsError are about the key."""
        try:
            yield
        except client_errors.ClientError as error:
            status = error.response["ResponseMetadata"]["HTTPStatusCode"]
            code = error.response["Error"]["Code"]
            if code == "NoSuchBucket":
                raise self._no_bucket() from error
            if status == 404:
                raise FileNotFoundError(str(error)) from error
            if status == 412:
                raise FileExistsError(str(error)) from error
            if status in _TRANSIENT_STATUS or code in _TRANSIENT_CODES:
                raise TransientError(error) from error
            if status in (401, 403):
                raise StoreError(
                    f"{self.address}: access was refused ({error}). Give the account of this process the permission to "
                    "list, read, write and delete there."
                ) from error
            raise StoreError(f"{self.address}: the server answered {status}: {error}.") from error
        except _NO_CREDENTIALS as error:
            raise StoreError(
                f"{self.address}: no credentials were found ({error}). Set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role."
            ) from error
        except _CUT_OFF as error:
            raise TransientError(error) from error
        except (client_errors.BotoCoreError, ValueError) as error:
            raise StoreError(f"{self.address}: {error}. Correct the address, or the settings of S3.") from error
