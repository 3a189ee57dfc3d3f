"""The interface of an object store: create-only bytes under keys."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Stat:
    """What a store tells of a key without reading it.

    Attributes:
        bytes: Length.
        generation: Names this very writing of the key: a renewed or rewritten key has another one.
        modified: When it was written, by the store's own clock, in seconds since 1970.
    """

    bytes: int
    generation: str
    modified: float


class ObjectStore(Protocol):
    """Create-only bytes under keys. A key that exists keeps its bytes for ever, unless it is deleted whole."""

    address: str
    parallel: int  # How many requests are worth making at once: 1 where the bytes are near.

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`. Returns False, and changes nothing, where it is there already."""

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a local file, which may be linked. Returns False where the key is there already."""

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`. Raises MissingArtifactError."""

    def local_path(self, key: str) -> Path:
        """A local file with the bytes of a blob. Raises MissingArtifactError."""

    def sha256(self, key: str) -> str:
        """Digest of the bytes of a blob, read from the store itself and not kept here. Raises MissingArtifactError."""

    def forget(self, key: str) -> None:
        """Drop what this machine keeps of `key`; the store keeps it."""

    def stat(self, key: str) -> Stat | None:
        """What the store tells of `key`, or None where there is no such key."""

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, side by side where that is faster."""

    def renew(self, key: str) -> bool:
        """Give `key` a new generation and a new time, its bytes unchanged. Returns False where there is no such key."""

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it still has this generation. Returns False, and changes nothing, where it has not."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""
