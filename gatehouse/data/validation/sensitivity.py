"""Sensitive columns: a column that a source declares sensitive is hidden in everything made from it."""

from gatehouse.errors import MissingArtifactError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def sensitive_columns(store: ArtifactStore, reference: Reference | str) -> frozenset[str]:
    """Names of the columns that an artifact, or one that it was derived from, declares sensitive.

    A query that renames a sensitive column has to declare the new name. Raises MissingArtifactError or
    CorruptArtifactError if a manifest is missing or was altered, because its declarations are unknown then.
    """
    start = Reference.parse(reference)
    names: set[str] = set()
    pending, seen = [start], {start}
    while pending:
        current = pending.pop()
        try:
            manifest = store.manifest(current)
        except MissingArtifactError as error:
            raise MissingArtifactError(
                f"{current} is missing, and {start} was made from it: expected its manifest, which says which columns "
                f"are sensitive. Restore it from a copy of the store."
            ) from error
        names |= set(manifest.details.get("sensitive", ()))
        new = {Reference.parse(parent) for parent in manifest.derived_from.values()} - seen
        seen |= new
        pending.extend(new)
    return frozenset(names)
