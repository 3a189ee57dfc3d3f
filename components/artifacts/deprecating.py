"""Marks an artifact as deprecated: once, with a reason and perhaps a successor."""

from gatehouse.components.artifacts.deprecation import Deprecation, deprecation_of, marker_of
from gatehouse.components.artifacts.records import author, create_record
from gatehouse.components.artifacts.reference import Reference
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.errors import ConfigurationError


def deprecate(
    store: ArtifactStore, reference: Reference | str, reason: str, successor: Reference | str = "", by: str = ""
) -> Deprecation:
    """Mark `reference` as deprecated; saying the same again changes nothing.

    Raises:
        MissingArtifactError: if the store does not hold the reference or its successor.
        ConfigurationError: if there is no reason, the successor is the reference itself or deprecated, or the
            reference is deprecated already for another reason.
    """
    reference = Reference.parse(reference)
    store.manifest(reference)
    if not reason.strip():
        raise ConfigurationError("A deprecation needs a reason: expected some words, found none. Give --reason.")
    following = _successor(store, reference, successor) if successor else ""
    create_record(store.objects, marker_of(reference), author(by) | {"reason": reason, "successor": following})
    held = deprecation_of(store.objects, reference)
    assert held is not None
    if (held.reason, held.successor) != (reason, following):
        raise ConfigurationError(
            f"{held.explain(reference)} A deprecation is written once; deprecate the successor to lead readers on."
        )
    return held


def _successor(store: ArtifactStore, reference: Reference, successor: Reference | str) -> str:
    following = Reference.parse(successor)
    if following == reference:
        raise ConfigurationError(f"--successor: expected another reference than the deprecated one, found {following}.")
    store.manifest(following)
    held = deprecation_of(store.objects, following)
    if held is not None:
        raise ConfigurationError(f"--successor: expected a reference in good standing; {held.explain(following)}")
    return str(following)
