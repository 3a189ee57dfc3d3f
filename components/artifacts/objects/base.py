"""The interface of an object store: create-only bytes under keys."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Stat:
    """What a store knows of a key without reading its content.

    Attributes:
        bytes: Length.
        generation: Changes whenever the key is renewed, or is written again after a deletion.
        modified: When it was written or renewed, in seconds since 1970 by the store's own clock.
    """

    bytes: int
    generation: str
    modified: float


class ObjectStore(Protocol):
    """Create-only bytes under keys: the bytes of a key never change. It can only be deleted.

    Every method may raise StoreError, where the store refuses or does not answer.

    Attributes:
        address: Where the store is, without a trailing slash.
        parallel: How many requests to make at once; 1 for a store on this machine.
    """

    address: str
    parallel: int

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`. Returns False, and changes nothing, where it exists already."""

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a local file, which may be linked. Returns False where the key exists already."""

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`.

        Raises:
            MissingArtifactError: if there is no such key.
        """

    def local_path(self, key: str) -> Path:
        """A local file with the bytes of a blob.

        Raises:
            MissingArtifactError: if there is no such key.
            CorruptArtifactError: if a far store holds other bytes than the key says.
        """

    def sha256(self, key: str) -> str:
        """SHA-256 of a blob, in hexadecimal digits. Its bytes are read from the store itself and not kept here.

        Raises:
            MissingArtifactError: if there is no such key.
            CorruptArtifactError: if a far store holds other bytes than the key says.
        """

    def forget(self, key: str) -> None:
        """Drop the copy of `key` that this machine keeps, if any."""

    def stat(self, key: str) -> Stat | None:
        """What the store knows of `key`, or None where there is no such key."""

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, side by side where that is faster."""

    def renew(self, key: str) -> bool:
        """Give `key` a new generation and time; its bytes stay. Returns False where there is no such key."""

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it has this generation. Returns False, and changes nothing, where it has not."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""
