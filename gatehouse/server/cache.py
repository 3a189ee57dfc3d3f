"""Cached reads of a store: a value is read again after a second, and kept while the store does not answer."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from gatehouse.errors import GatehouseError, StoreError

T = TypeVar("T")
_FRESH = 1.0
_PATIENCE = 0.25
_FIRST_PATIENCE = 10.0
_MOST = 10_000


@dataclass(frozen=True)
class CachedValue(Generic[T]):
    """A value, and when it was read, in seconds of the monotonic clock."""

    value: T
    read_at: float

    @property
    def age(self) -> float:
        """Its age in seconds."""
        return time.monotonic() - self.read_at


@dataclass(frozen=True)
class _Reading(Generic[T]):
    future: Future[CachedValue[T]]
    began: float


class ReadCache(Generic[T]):
    """Values by key. `read` is called when a value is requested and is older than a second.

    If reading takes longer than a quarter of a second, or the store fails, the old value is returned with its age, and
    the next callers do not wait. A permanent error is no failure of the store: the caller gets it.
    """

    def __init__(self, read: Callable[[str], T]) -> None:
        self._read = read
        self._values: dict[str, CachedValue[T]] = {}
        self._readings: dict[str, _Reading[T]] = {}
        self._changes = 0
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="read-cache")

    def get(self, key: str) -> CachedValue[T]:
        """The value of a key.

        Raises StoreError if it was never read, and the store does not answer. Raises GatehouseError if `read` raises a
        permanent error.
        """
        value = self._values.get(key)
        if value is not None and value.age < _FRESH:
            return value
        reading = self._reading(key)
        patience = _FIRST_PATIENCE if value is None else max(0.0, _PATIENCE - (time.monotonic() - reading.began))
        try:
            return reading.future.result(patience)
        except TimeoutError as error:
            if value is None:
                raise StoreError("The store does not answer, and it has not been read yet. Try again.") from error
        except GatehouseError as error:
            if value is None or error.permanent:
                raise
        return value

    def forget(self) -> None:
        """Read everything again at the next request. Old values are still used while the store does not answer."""
        with self._lock:
            self._changes += 1
            self._values = {
                key: CachedValue(cached.value, cached.read_at - _FRESH) for key, cached in self._values.items()
            }
            self._readings.clear()

    def close(self) -> None:
        """End its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _reading(self, key: str) -> _Reading[T]:
        with self._lock:
            reading = self._readings.get(key)
            if reading is None or reading.future.done():
                reading = _Reading(self._threads.submit(self._keep, key, self._changes), time.monotonic())
                self._readings[key] = reading
            return reading

    def _keep(self, key: str, changes: int) -> CachedValue[T]:
        began = time.monotonic()
        cached = CachedValue(self._read(key), began)
        with self._lock:
            # A value that was read before a change is not valid after it.
            if changes == self._changes and (key in self._values or len(self._values) < _MOST):
                self._values[key] = cached
        return cached
