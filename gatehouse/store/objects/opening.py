"""Opens the object store at an address. A protocol's client is imported only when it is needed."""

import os
import re
from pathlib import Path

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import holds_secret, require_encoded
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.local import LocalObjects

STORES = ("gs", "s3")
"""Schemes that hold a store, beside files."""
_FORM = "expected a folder, or an address such as gs://<bucket>/<folder> or s3://<bucket>/<folder>"
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST")
"""Variables with addresses of servers, which clients read themselves."""


def address_problem(address: str) -> str:
    """The problem of the form of a store's address; empty if there is none."""
    text = address.removeprefix("file://")
    scheme, separator, place = text.partition("://")
    if not text:
        return f"{_FORM}, found nothing"
    if not separator:
        almost = re.match(r"[a-z][a-z0-9]+:|(?:file|gs|s3)//", text)
        return f"{_FORM}, found {almost[0]}" if almost else ""
    if holds_secret(text):
        return f"{_FORM}, found one with a password: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY instead"
    if scheme not in STORES:
        return f"{_FORM}, found {scheme}://"
    return "" if place.strip("/") and not place.startswith("/") else f"{_FORM}, found no bucket in {address!r}"


def open_objects(address: str) -> ObjectStore:
    """Open a directory, or a `file://`, `gs://` or `s3://` address.

    Raises ConfigurationError if the address has another form; StoreError if the place cannot be opened, or no client of
    its scheme is installed.
    """
    if problem := address_problem(address):
        raise ConfigurationError(f"The address of the store: {problem}. Correct it, or `store` in project.yaml.")
    text = address.removeprefix("file://")
    if "://" not in text:
        return LocalObjects(Path(text).expanduser().resolve())
    for variable in _ENDPOINTS:
        if "://" in (endpoint := os.environ.get(variable, "")):
            require_encoded(endpoint, variable, bare=True)
    from gatehouse.store.objects.remote import BlobCache, Bucket, RemoteObjects

    bucket: Bucket
    try:
        if text.startswith("gs://"):
            from gatehouse.store.objects.gcs import GcsBucket

            bucket = GcsBucket(text)
        else:
            from gatehouse.store.objects.s3 import S3Bucket

            bucket = S3Bucket(text)
    except ImportError as error:
        scheme = text.partition("://")[0]
        raise StoreError(
            f"The store {address!r} needs the package {error.name}, which is not installed. Install Gatehouse with the "
            f"extra for {scheme} (gcs, s3)."
        ) from error
    return RemoteObjects(bucket, BlobCache.default())
