"""Which columns no value may be shown of: what a source declares sensitive stays so in all that is made from it."""

import contextlib

from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import MissingArtifactError


def sensitive_columns(store: ArtifactStore, reference: Reference | str) -> frozenset[str]:
    """Names of the columns that were declared sensitive, in an artifact or in what it was derived from.

    A column that comes under another name is not found: what renames one has to say that it is sensitive.
    """
    names: set[str] = set()
    pending = [Reference.parse(reference)]
    seen = set(pending)
    while pending:
        with contextlib.suppress(MissingArtifactError):
            manifest = store.manifest(pending.pop())
            names |= set(manifest.details.get("sensitive", ()))
            new = {Reference.parse(each) for each in manifest.derived_from.values()} - seen
            seen |= new
            pending.extend(new)
    return frozenset(names)
