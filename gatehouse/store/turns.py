"""Lets one process at a time do something: its holder renews a record in the store, which other processes respect."""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from gatehouse.errors import GatehouseError
from gatehouse.runtime.process import here, start_time
from gatehouse.store.canonical import digest_of
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record, remove_record

logger = logging.getLogger(__name__)

TURNS = "turns"
_MISSED = 6
"""How many beats a holder may miss."""


class TurnLostError(GatehouseError):
    """Another process took the turn, because this one gave no sign of life for too long."""


class Turn:
    """A lock held by one process at a time for each `what`, in a `with` statement.

    Other processes wait for it. With `refusal`, they raise its error, which gets the record of the holder, once they
    saw that the holder lives.

    The holder renews its record at every beat. A process that sees no beat for six intervals of its own clock takes the
    turn, because the holder was killed; so the machines' clocks do not matter. A holder on this machine whose process
    has ended is not watched. One that was only suspended has lost its turn: it calls `require` just before each
    exclusive step.
    """

    def __init__(
        self,
        objects: ObjectStore,
        what: str,
        beat: float = 5.0,
        *,
        key: str = "",
        refusal: Callable[[Mapping[str, Any]], GatehouseError] | None = None,
    ) -> None:
        """Prepare to hold a turn; `key` is that of its record, by default one that follows from `what`."""
        self._objects, self._key, self._beat = objects, key or f"{TURNS}/{digest_of(what)}.json", beat
        self._refusal, self._ended = refusal, threading.Event()
        holder = {"what": what, "host": here(), "process": os.getpid(), "token": secrets.token_hex(8)}
        self._own: dict[str, Any] = author() | holder

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

    def require(self) -> None:
        """Check that the turn is still held. Raises TurnLostError if another process took it."""
        if not self._is_own():
            raise TurnLostError(
                f"{self._own['what']}: this process did not run for so long that another process took its lock. Run "
                "the command again: it continues from what the other process did."
            )

    def _take(self) -> None:
        """Create the record, once no other process holds it."""
        generation, since, holder = "", 0.0, dict[str, Any]()
        while not create_record(self._objects, self._key, self._own):
            stat = self._objects.stat(self._key)
            if stat is not None and stat.generation != generation:
                generation, since = stat.generation, time.monotonic()
                before, holder = holder, read_record(self._objects, self._key) or {}
                if before and self._refusal:
                    raise self._refusal(before)
                if holder and not before and not self._refusal:
                    logger.warning(
                        "%s: waiting for %s, who holds the lock since %s, or until it gives no sign of life for %g s.",
                        *(self._own["what"], holder["by"], holder["at"], _MISSED * self._beat),
                    )
            if stat is not None and (time.monotonic() - since > _MISSED * self._beat or is_gone(holder)):
                self._objects.delete(self._key, generation)
                holder = {}
            else:
                time.sleep(self._beat / 20)

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


def is_gone(holder: Mapping[str, Any]) -> bool:
    """Whether a holder was a process on this machine that has ended."""
    return holder.get("host") == here() and start_time(int(holder.get("process", 0))) is None
