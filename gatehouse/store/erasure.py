"""Erased artifacts: `<reference>/erased.json` marks an artifact whose data was removed on request.

The marker says who asked, when (UTC) and why, and names the record `erasures/<n>.json` of the whole request.
"""

from dataclasses import dataclass

from gatehouse.errors import ErasedArtifactError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import read_record, read_records
from gatehouse.store.reference import Reference

RECORDS = "erasures"


@dataclass(frozen=True)
class Erasure:
    """Who asked for an erasure, when and why; `record` is the key of the request's record."""

    record: str
    reason: str
    by: str
    at: str

    def explain(self, what: str) -> str:
        """One sentence for a person."""
        return f"{what} was erased on {self.at} by {self.by}: {self.reason.rstrip('.')} (record {self.record})."


def erased_marker(reference: Reference | str) -> str:
    """The key that marks an artifact as erased."""
    return f"{reference}/erased.json"


def erasure_of(objects: ObjectStore, reference: Reference) -> Erasure | None:
    """The erasure of `reference`, or None."""
    body = read_record(objects, erased_marker(reference))
    return None if body is None else Erasure(body["record"], body["reason"], body["by"], body["at"])


def require_kept(objects: ObjectStore, reference: Reference) -> None:
    """Raise ErasedArtifactError, which names the record, if `reference` was erased."""
    erasure = erasure_of(objects, reference)
    if erasure is not None:
        raise ErasedArtifactError(
            f"{erasure.explain(str(reference))} It is neither read nor published again. Remove the rows in question "
            "from the source, and run again: other rows make another artifact."
        )


def erased_artifacts(objects: ObjectStore) -> frozenset[str]:
    """All artifacts whose data must not be in this store, also if their eraser was killed."""
    records = read_records(objects, objects.list(RECORDS)).values()
    return frozenset(str(Reference.parse(artifact)) for body in records for artifact in body["artifacts"])


def remove_all(objects: ObjectStore, key: str) -> bool:
    """Delete `key` in every generation, from the store and from this machine's cache; False if it was gone already."""
    removed = False
    objects.forget(key)
    while (stat := objects.stat(key)) is not None:
        removed = objects.delete(key, stat.generation) or removed
    return removed
