"""Lets one process at a time do something: its holder renews a record in the store, which other processes respect."""

import logging
import secrets
import threading
import time
from typing import Any, Self

from gatehouse.errors import GatehouseError
from gatehouse.store.canonical import digest_of
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record, remove_record

logger = logging.getLogger(__name__)

TURNS = "turns"


class TurnLostError(GatehouseError):
    """Another process took the turn, because this one gave no sign of life for too long."""


class RenewedRecord:
    """A record in the store that its holder renews at every beat, in a `with` statement."""

    def __init__(self, objects: ObjectStore, key: str, facts: dict[str, Any], beat: float) -> None:
        """Prepare to hold the record `key`, which shows others these facts; `beat` is in seconds."""
        self._objects, self._key, self._beat = objects, key, beat
        self._own = author() | facts | {"token": secrets.token_hex(8)}
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        self._take()
        threading.Thread(target=self._renew, name=self._key, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        try:
            if self._is_own():
                remove_record(self._objects, self._key)
        except Exception as error:
            logger.warning("%s stays until a waiting process sees no beat: %s", self._key, error)

    def _take(self) -> None:
        """Create the record, once no other process holds it."""
        raise NotImplementedError

    def _is_own(self) -> bool:
        return read_record(self._objects, self._key) == self._own

    def _renew(self) -> None:
        while not self._ended.wait(self._beat):
            try:
                if not self._is_own():
                    return
                self._objects.renew(self._key)
            except Exception as error:
                logger.warning("%s could not be renewed: %s", self._key, error)


class Turn(RenewedRecord):
    """A lock held by one process at a time for each `what`, in a `with` statement; other processes wait for it.

    The holder renews its record at every beat. If a waiting process sees no beat for six intervals of its own clock, it
    takes the turn, because the holder was killed. So the machines' clocks do not matter. A holder that was only
    suspended has lost its turn then: it calls `require` just before each exclusive step.
    """

    def __init__(self, objects: ObjectStore, what: str, beat: float = 5.0) -> None:
        super().__init__(objects, f"{TURNS}/{digest_of(what)}.json", {"what": what}, beat)

    def _take(self) -> None:
        generation, since, warned = "", time.monotonic(), False
        while not create_record(self._objects, self._key, self._own):
            stat = self._objects.stat(self._key)
            if stat is not None and stat.generation != generation:
                generation, since = stat.generation, time.monotonic()
            elif stat is not None and time.monotonic() - since > 6 * self._beat:
                self._objects.delete(self._key, generation)
            if not warned and (holder := read_record(self._objects, self._key)):
                warned = True
                logger.warning(
                    "%s: waiting for %s, who holds the lock since %s, or until it gives no sign of life for %g s.",
                    *(self._own["what"], holder["by"], holder["at"], 6 * self._beat),
                )
            time.sleep(self._beat / 20)

    def require(self) -> None:
        """Check that the turn is still held. Raises TurnLostError if another process took it."""
        if not self._is_own():
            raise TurnLostError(
                f"{self._own['what']}: this process did not run for so long that another process took its lock. Run "
                "the command again: it continues from what the other process did."
            )
