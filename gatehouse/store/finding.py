"""Finds the reference that a shortened text names."""

import re

from gatehouse.errors import ConfigurationError
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def find_reference(store: ArtifactStore, text: str) -> Reference:
    """The reference that `text` names: complete, with a shortened digest, or by kind and name if that is unique.

    Raises InvalidReferenceError if it cannot be a reference. Raises ConfigurationError if the store holds no reference
    that begins with it, or several.
    """
    unknown = f"{text} is not in the store {store.address}. See `gatehouse data list`, or name another --store."
    parts = text.rstrip("/").split("/")
    parts = parts[-3:] if parts[-1].startswith("sha256-") else [*parts, "sha256-"]
    digest = parts[-1].removeprefix("sha256-")
    plain = all(re.fullmatch("[A-Za-z0-9][A-Za-z0-9._-]*", part) for part in parts)
    if len(parts) != 3 or len(digest) >= 64 or not plain:
        reference = Reference.parse(text)
        if store.objects.stat(f"{reference}/manifest.json") is None:
            raise ConfigurationError(unknown)
        return reference
    matches = [reference for reference in store.references(*parts[:2]) if reference.digest.startswith(digest)]
    if not matches:
        raise ConfigurationError(unknown)
    if len(matches) > 1:
        examples = ", ".join(reference.short for reference in matches[:5]) + (", …" if len(matches) > 5 else "")
        raise ConfigurationError(f"{text} is the beginning of {len(matches)} references: {examples}. Give more digits.")
    return matches[0]
