"""Quarantine: damaged bytes are put aside under `quarantine/`, so that the right content can be made again."""

from collections.abc import Iterator

from gatehouse.errors import MissingArtifactError
from gatehouse.store.canonical import sha256_bytes
from gatehouse.store.objects.base import ObjectStore

QUARANTINE = "quarantine"


def put_aside(objects: ObjectStore, key: str, sha256: str) -> str:
    """Move the content of `key` to `quarantine/`, if it is damaged.

    It is kept there, because it may hold the only copy of rows that the source no longer has.

    Args:
        objects: The store.
        key: Key of a blob or a manifest.
        sha256: Digest of the right bytes.

    Returns:
        The key of the damaged bytes; empty if the content is right, or gone.
    """
    objects.forget(key)
    found = objects.stat(key)
    try:
        data = b"" if found is None else objects.get_bytes(key)
    except MissingArtifactError:
        found = None
    if found is None or sha256_bytes(data) == sha256:
        return ""
    aside = f"{QUARANTINE}/{key}/{sha256_bytes(data)}"
    objects.put_bytes(aside, data)
    objects.delete(key, found.generation)
    return aside


def aside_of(objects: ObjectStore, key: str) -> Iterator[str]:
    """The keys of all damaged bytes that were once stored under `key`."""
    return objects.list(f"{QUARANTINE}/{key}")
