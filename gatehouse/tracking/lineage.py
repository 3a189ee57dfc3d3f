"""Lineage: all artifacts that an artifact was made from, read from the manifests."""

from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

TAG = "gatehouse.lineage."


def lineage_of(store: ArtifactStore, reference: Reference | str) -> tuple[str, ...]:
    """Identities of all artifacts that `reference` was derived from, directly or not, sorted; without `reference`.

    Raises:
        MissingArtifactError, CorruptArtifactError: if a manifest in the lineage is missing or was altered.
    """
    first = Reference.parse(reference)
    seen: set[Reference] = {first}
    pending = [first]
    while pending:
        parents = {Reference.parse(each) for each in store.manifest(pending.pop()).derived_from.values()}
        pending.extend(parents - seen)
        seen |= parents
    return tuple(str(each) for each in sorted(seen - {first}))


def lineage_tags(lineage: tuple[str, ...]) -> dict[str, str]:
    """MLflow tags: `gatehouse.lineage.<kind>.<name>`, each with the identities of that kind and name, in one line."""
    tags: dict[str, list[str]] = {}
    for identity in lineage:
        reference = Reference.parse(identity)
        tags.setdefault(f"{TAG}{reference.kind}.{reference.name}", []).append(identity)
    return {name: " ".join(identities) for name, identities in tags.items()}
