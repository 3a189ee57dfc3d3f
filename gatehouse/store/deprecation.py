"""Deprecation: a marker beside a manifest that says why an artifact should not be used, and what to use instead.

The marker is no part of the artifact's identity. Whoever reads a deprecated artifact is warned.
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.store.age import touch
from gatehouse.store.manifest import read_manifest
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record
from gatehouse.store.reference import Reference

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Deprecation:
    """Why an artifact should not be used; `successor` is the reference to use instead, or empty."""

    reason: str
    successor: str
    by: str
    at: str

    def explain(self, reference: Reference) -> str:
        """One sentence for a person."""
        instead = f" Use {self.successor}." if self.successor else ""
        return f"{reference} is deprecated since {self.at}: {self.reason.rstrip('.')}.{instead}"


def marker_of(reference: Reference) -> str:
    """The key of the marker."""
    return f"{reference}/deprecated.json"


def deprecation_of(objects: ObjectStore, reference: Reference) -> Deprecation | None:
    """The deprecation of `reference`, or None."""
    body = read_record(objects, marker_of(reference))
    return None if body is None else Deprecation(body["reason"], body["successor"], body["by"], body["at"])


def deprecate(
    objects: ObjectStore, reference: Reference | str, reason: str, successor: Reference | str = "", by: str = ""
) -> Deprecation:
    """Mark an artifact as deprecated, by default by the user of this process; repeating it changes nothing.

    Raises MissingArtifactError if the store does not hold the reference or its successor; ConfigurationError if there
    is no reason, the successor is the reference itself or deprecated, or the reference is deprecated already for
    another reason.
    """
    reference = Reference.parse(reference)
    read_manifest(objects, reference)
    if not reason.strip():
        raise ConfigurationError("A deprecation needs a reason. Give --reason.")
    if successor:
        successor = Reference.parse(successor)
        read_manifest(objects, successor)
        if successor == reference or deprecation_of(objects, successor) is not None:
            raise ConfigurationError(f"--successor: expected an artifact that is not deprecated, found {successor}.")
    create_record(objects, marker_of(reference), author(by) | {"reason": reason, "successor": str(successor)})
    deprecation = deprecation_of(objects, reference)
    assert deprecation is not None
    if (deprecation.reason, deprecation.successor) != (reason, str(successor)):
        raise ConfigurationError(
            f"{deprecation.explain(reference)} A deprecation cannot be changed. To point readers to another artifact, "
            "deprecate the successor."
        )
    return deprecation


def warn_if_deprecated(objects: ObjectStore, reference: Reference) -> str:
    """The warning about an artifact that is about to be read, which is logged; empty if it is not deprecated.

    A deprecated artifact is touched, so that the collector leaves it to its reader.
    """
    if (deprecation := deprecation_of(objects, reference)) is None:
        return ""
    with suppress(StoreError):  # A user with read-only access cannot touch it.
        touch(objects, [f"{reference}/manifest.json"])
    warning = deprecation.explain(reference)
    logger.warning("%s", warning)
    return warning
