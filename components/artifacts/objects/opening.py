"""Opens the object store at an address. A protocol's client is imported only when it is needed."""

import re
from pathlib import Path

from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.objects.local import LocalObjects
from gatehouse.errors import StoreError

_LOOKS_REMOTE = re.compile(r"[a-z][a-z0-9]+:")


def open_objects(address: str) -> ObjectStore:
    """Open a directory, or a `file://`, `gs://`, `s3://` or other fsspec address.

    Raises:
        StoreError: if the place cannot be opened, or no client supports its scheme.
    """
    text = address.removeprefix("file://")
    if not text:
        raise StoreError("The store's address is empty: expected a directory, gs:// or s3://. Give one with --store.")
    if "://" not in text:
        if _LOOKS_REMOTE.match(text):
            raise StoreError(
                f"{address!r} is neither a directory nor an address: expected <scheme>://<bucket>/<folder>, or ./ "
                "before the name of a directory."
            )
        return LocalObjects(Path(text).expanduser().resolve())
    from gatehouse.components.artifacts.objects.cache import BlobCache, KnownKeys
    from gatehouse.components.artifacts.objects.remote import Bucket, RemoteObjects

    bucket: Bucket
    try:
        if text.startswith("gs://"):
            from gatehouse.components.artifacts.objects.gcs import GcsBucket

            bucket = GcsBucket(text)
        elif text.startswith("s3://"):
            from gatehouse.components.artifacts.objects.s3 import S3Bucket

            bucket = S3Bucket(text)
        else:
            from gatehouse.components.artifacts.objects.fsspec import FsspecBucket

            bucket = FsspecBucket(text)
    except ImportError as error:
        scheme = text.partition("://")[0]
        raise StoreError(
            f"No object store serves {address!r}: the package {error.name} is not installed. Install Gatehouse with "
            f"the extra for {scheme} (gcs, s3), or give a directory with --store."
        ) from error
    return RemoteObjects(bucket, BlobCache.default(), KnownKeys(bucket.address))
