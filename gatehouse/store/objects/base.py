"""The interface of an object store: create-only bytes under keys."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class Stat:
    """A store's metadata of a key.

    Attributes:
        bytes: Length.
        generation: Changes whenever the key is renewed, or written again after a deletion.
        modified: When it was written or renewed, in seconds since 1970 by the store's own clock.
    """

    bytes: int
    generation: str
    modified: float


class ObjectStore(Protocol):
    """Create-only bytes under keys: the bytes of a key never change. A key can only be deleted.

    Every method may raise StoreError if the store refuses or does not answer.

    Attributes:
        address: Where the store is, without a trailing slash.
        parallel: Number of simultaneous requests; 1 for a store on this machine.
    """

    address: str
    parallel: int

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`. Returns False, and changes nothing, if it exists."""

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a local file, which may be linked. Returns False if the key exists."""

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`.

        Raises:
            MissingArtifactError: if there is no such key.
        """

    def local_path(self, key: str) -> Path:
        """A local file with the bytes of a blob.

        Raises:
            MissingArtifactError: if there is no such key.
            CorruptArtifactError: if a remote store holds bytes that differ from the key's digest.
        """

    def sha256(self, key: str) -> str:
        """SHA-256 of a blob, in hexadecimal digits. Its bytes are read from the store itself and not cached here.

        Raises:
            MissingArtifactError: if there is no such key.
            CorruptArtifactError: if a remote store holds bytes that differ from the key's digest.
        """

    def forget(self, key: str) -> None:
        """Delete this machine's copy of `key`, if any."""

    def stat(self, key: str) -> Stat | None:
        """The store's metadata of `key`, or None if there is no such key."""

    def stats(self, keys: Iterable[str]) -> Mapping[str, Stat | None]:
        """`stat` of many keys, in parallel if that is faster."""

    def renew(self, key: str) -> bool:
        """Give `key` a new generation and time; its bytes stay. Returns False if there is no such key."""

    def delete(self, key: str, generation: str) -> bool:
        """Delete `key` if it has this generation. Returns False, and changes nothing, if it has another."""

    def list(self, prefix: str) -> Iterator[str]:
        """Keys under the folder `prefix`, sorted."""

    def folders(self, prefix: str = "") -> Iterator[str]:
        """Names of the folders directly under `prefix`, sorted."""
