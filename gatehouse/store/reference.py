"""References: plain strings that end in the digest of what they name."""

import re
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import InvalidReferenceError

_IDENTITY = re.compile(
    r"(?P<kind>[a-z][a-z0-9-]*)/(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)/sha256-(?P<digest>[0-9a-f]{64})\Z"
)


@dataclass(frozen=True, order=True)
class Reference:
    """The identity of one immutable artifact: `<kind>/<name>/sha256-<64 hex>`.

    The digest is the SHA-256 of the artifact's manifest. Two stores that hold the same artifact hold it under
    the same reference; the address of a store is never part of it.
    """

    kind: str
    name: str
    digest: str

    def __post_init__(self) -> None:
        if not _IDENTITY.match(str(self)):
            raise InvalidReferenceError(
                f"{str(self)!r} is not a reference: expected <kind>/<name>/sha256-<64 hex>, with a lower-case kind and "
                "a name of letters, digits, '.', '_' and '-'."
            )

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}/sha256-{self.digest}"

    @property
    def short(self) -> str:
        """The reference with a digest cut to 12 digits: for people, never for look-ups."""
        return f"{self.kind}/{self.name}/sha256-{self.digest[:12]}"

    @classmethod
    def parse(cls, text: "str | Reference") -> "Reference":
        """Read an identity, or an address (`<store>/<identity>`); raises InvalidReferenceError for other texts."""
        if isinstance(text, Reference):
            return text
        tail = "/".join(text.rstrip("/").split("/")[-3:])
        match = _IDENTITY.match(tail)
        if match is None:
            raise InvalidReferenceError(
                f"{text!r} is not a reference: expected <kind>/<name>/sha256-<64 hex>, optionally behind a store's "
                "address. Copy it from `gatehouse data list` or from a run's summary."
            )
        return cls(**match.groupdict())


def is_identity(text: str) -> bool:
    """Whether `text` is an identity, without a store's address before it."""
    return _IDENTITY.match(text) is not None


def references_in(value: Any) -> tuple[Reference, ...]:
    """All references among the strings of a nested JSON value, in order of appearance, each once."""
    references: dict[Reference, None] = {}
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, str) and (match := _IDENTITY.match(node)):
            references[Reference(**match.groupdict())] = None
        elif isinstance(node, dict):
            pending.extend(reversed(node.values()))
        elif isinstance(node, (list, tuple)):
            pending.extend(reversed(node))
    return tuple(references)
