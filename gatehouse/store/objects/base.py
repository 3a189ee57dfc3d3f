"""The interface of an object store, which holds create-only bytes under keys, with parallel requests and retries."""

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import current_thread
from typing import Protocol, TypeVar

logger = logging.getLogger(__name__)

ATTEMPTS = 6
FIRST_WAIT, LONGEST_WAIT = 0.2, 8.0
_SIDE = "side-by-side"
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Stat:
    """A store's metadata of a key.

    `generation` changes whenever the key is renewed, or written again after a deletion. `modified` is when it was
    written or renewed, in seconds since 1970 by the store's own clock.
    """

    bytes: int
    generation: str
    modified: float


class ObjectStore(Protocol):
    """Create-only bytes under keys: the bytes of a key never change. A key can only be deleted.

    `address` has no trailing slash; `parallel` is the number of simultaneous requests, 1 for a store on this machine.
    Every method may raise StoreError if the store refuses or does not answer. Methods that read bytes raise
    MissingArtifactError for a key that does not exist.
    """

    address: str
    parallel: int

    def put_bytes(self, key: str, data: bytes) -> bool:
        """Create `key`. Returns False, and changes nothing, if it exists."""

    def put_file(self, key: str, path: Path) -> bool:
        """Create `key` from a local file, which may be linked. Returns False if the key exists."""

    def get_bytes(self, key: str) -> bytes:
        """The bytes of `key`."""

    def local_path(self, key: str) -> Path:
        """A local file with the bytes of a blob; a remote store raises CorruptArtifactError for other bytes."""

    def sha256(self, key: str) -> str:
        """SHA-256 of a blob, read from the store itself and not cached here; raises as `local_path` does."""

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


def side_by_side(objects: ObjectStore, work: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """The results of `work` on each item, in order, as many at once as the store supports; raises the first failure.

    Work that itself asks for items side by side gets them one after another, so that threads do not multiply.
    """
    items = list(items)
    if objects.parallel == 1 or len(items) < 2 or current_thread().name.startswith(_SIDE):
        return [work(item) for item in items]
    with ThreadPoolExecutor(objects.parallel, _SIDE) as pool:
        return list(pool.map(work, items))


class TransientError(Exception):
    """A temporary failure of a request, with the client's error; `exhausted` if it was retried often enough already."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.exhausted = False


def retried(request: Callable[[bool], Result], what: str) -> Result:
    """Make a request, and repeat it after a TransientError, up to `ATTEMPTS` times in all.

    Waits double from `FIRST_WAIT` seconds up to `LONGEST_WAIT`, each multiplied by a random number in [0.5, 1.5], so
    that clients that failed together do not retry together.

    `request` is called with whether this is a repetition: the attempt before may have succeeded, with its answer lost.
    Raises the TransientError of the last attempt.
    """
    attempt = 1
    while True:
        try:
            return request(attempt > 1)
        except TransientError as error:
            if attempt == ATTEMPTS or error.exhausted:
                error.exhausted = True
                raise
            wait = min(FIRST_WAIT * 2 ** (attempt - 1), LONGEST_WAIT) * random.uniform(0.5, 1.5)
            logger.info("%s: %s; trying again in %.1f s", what, error, wait)
            time.sleep(wait)
            attempt += 1
