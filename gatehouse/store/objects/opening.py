"""Opens the object store at an address. A protocol's client is imported only when it is needed."""

import os
import re
from pathlib import Path

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.runtime.redaction import names_password, require_encoded
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.objects.local import LocalObjects

STORES = ("gs", "s3")
"""Schemes that hold a store, beside files."""
_FORM = "expected a folder, or an address such as gs://<bucket>/<folder> or s3://<bucket>/<folder>"
_QUOTES = "\u201c\u201d\u201e\u2018\u2019\u00ab"
_ALMOST_REMOTE = re.compile(rf"[a-z][a-z0-9]+:|(?:file|{'|'.join(STORES)})//")
_ENDPOINTS = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "STORAGE_EMULATOR_HOST")
"""Variables with addresses of servers, which clients read themselves."""


def address_problem(address: str) -> str:
    """What is wrong with the address of a store, as far as it tells without reaching the place; empty if nothing is."""
    text = address.removeprefix("file://")
    scheme, remote, place = text.partition("://")
    if not text:
        return f"{_FORM}, found {'none' if not address else repr(address)}"
    if text[0] in _QUOTES:
        return f"{_FORM}, found {address!r}, in quotes that YAML does not know; write none"
    if not remote:
        almost = _ALMOST_REMOTE.match(text)
        found = "another" if "@" in text else repr(address)
        return f"{_FORM}, found {found}; write ./ before it if it is a folder" if almost else ""
    if names_password(text):
        return (
            "expected an address without a password, found one, which every record of a run would hold; take it "
            "out, and give it to the client in variables, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        )
    if not place.strip("/") or (scheme in ("gs", "s3") and place.startswith("/")):
        return f"expected {scheme}://<bucket>/<folder>, found {address!r}, which names no bucket"
    return "" if scheme in STORES else f"expected a folder, gs:// or s3://, found {scheme + remote!r}"


def open_objects(address: str) -> ObjectStore:
    """Open a directory, or a `file://`, `gs://` or `s3://` address.

    Raises:
        ConfigurationError: if the address is none of a store.
        StoreError: if the place cannot be opened, or no client of its scheme is installed.
    """
    if problem := address_problem(address):
        raise ConfigurationError(f"The address of the store: {problem}. Correct `store` in project.yaml, or --store.")
    text = address.removeprefix("file://")
    if "://" not in text:
        return LocalObjects(Path(text).expanduser().resolve())
    for variable in _ENDPOINTS:
        if "://" in (endpoint := os.environ.get(variable, "")):
            require_encoded(endpoint, variable, bare=True)
    from gatehouse.store.objects.cache import BlobCache, KnownKeys
    from gatehouse.store.objects.remote import Bucket, RemoteObjects

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
            f"No object store serves {address!r}: the package {error.name} is not installed. Install Gatehouse with "
            f"the extra for {scheme} (gcs, s3), or give a directory with --store."
        ) from error
    return RemoteObjects(bucket, BlobCache.default(), KnownKeys(bucket.address))
