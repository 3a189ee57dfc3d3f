"""Deprecation: a marker beside a manifest that says why an artifact should not be used, and what to use instead.

The marker is no part of the artifact's identity. Readers warn by default; `GATEHOUSE_DEPRECATED` makes it `fail`, or
`allow` without a word.
"""

import logging
import os
from dataclasses import dataclass

from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.records import read_record
from gatehouse.components.artifacts.reference import Reference
from gatehouse.errors import ConfigurationError, DeprecatedArtifactError

logger = logging.getLogger(__name__)

POLICY = "GATEHOUSE_DEPRECATED"
_POLICIES = ("warn", "fail", "allow")


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


def require_in_use(objects: ObjectStore, reference: Reference) -> str:
    """Warn, fail or pass for a deprecated artifact that is about to be read, as `GATEHOUSE_DEPRECATED` says.

    Returns:
        The warning, or nothing.

    Raises:
        DeprecatedArtifactError: under the policy `fail`.
        ConfigurationError: if the policy is none of warn, fail and allow.
    """
    policy = os.environ.get(POLICY, "") or "warn"
    if policy not in _POLICIES:
        raise ConfigurationError(f"{POLICY}: expected one of {', '.join(_POLICIES)}, found {policy!r}.")
    held = None if policy == "allow" else deprecation_of(objects, reference)
    if held is None:
        return ""
    if policy == "fail":
        raise DeprecatedArtifactError(f"{held.explain(reference)} Set {POLICY}=warn to read it all the same.")
    logger.warning("%s", held.explain(reference))
    return held.explain(reference)
