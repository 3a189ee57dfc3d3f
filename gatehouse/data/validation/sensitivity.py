"""Which columns no value may be shown of: what a source declares sensitive stays so in all that is made from it."""

from gatehouse.errors import MissingArtifactError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def sensitive_columns(store: ArtifactStore, reference: Reference | str) -> frozenset[str]:
    """Names of the columns that were declared sensitive, in an artifact or in what it was derived from.

    A column that comes under another name is not found: what renames one has to say that it is sensitive.

    Raises:
        MissingArtifactError: if the store lacks one of these artifacts, as what it declares cannot be told then.
        CorruptArtifactError: if the manifest of one was altered.
    """
    asked = Reference.parse(reference)
    names: set[str] = set()
    pending = [asked]
    seen = {asked}
    while pending:
        current = pending.pop()
        try:
            manifest = store.manifest(current)
        except MissingArtifactError as error:
            raise MissingArtifactError(
                f"{current} is missing, and {asked} was made from it: expected its manifest, which says which columns "
                f"are sensitive, so that none of their values is shown. Restore it from a copy of the store, or do "
                f"this in the store that {asked.short} was copied from."
            ) from error
        names |= set(manifest.details.get("sensitive", ()))
        new = {Reference.parse(each) for each in manifest.derived_from.values()} - seen
        seen |= new
        pending.extend(new)
    return frozenset(names)
