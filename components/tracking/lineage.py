"""Lineage: everything that an artifact was made from, down to the raw data."""

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore


def lineage(store: ArtifactStore, reference: Reference | str) -> tuple[str, ...]:
    """Identities of all artifacts that `reference` was derived from, nearest first, each once.

    Raises:
        MissingArtifactError, CorruptArtifactError: if the store does not hold one of them as it was.
    """
    seen: dict[str, None] = {}
    pending = [Reference.parse(reference)]
    while pending:
        for parent in store.manifest(pending.pop(0)).derived_from.values():
            if parent not in seen:
                seen[parent] = None
                pending.append(Reference.parse(parent))
    return tuple(seen)
