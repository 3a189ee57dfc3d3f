"""One process at a time does a thing: a record in the store that its holder renews, and that others wait for."""

import logging
import secrets
import threading
import time
from types import TracebackType

from gatehouse.components.artifacts.canonical import digest_of
from gatehouse.components.artifacts.objects.base import ObjectStore
from gatehouse.components.artifacts.records import author, create_record, read_record, remove_record

logger = logging.getLogger(__name__)

TURNS = "turns"


class Turn:
    """Held by one process at a time for each `what`, in a `with` statement; the others wait for their turn.

    The holder renews its record at every beat. Who waits, and sees no beat for six of them by its own clock, takes the
    turn, as the holder was killed. So clocks of machines do not matter.
    """

    def __init__(self, objects: ObjectStore, what: str, beat: float = 5.0) -> None:
        self._objects, self._beat = objects, beat
        self._key = f"{TURNS}/{digest_of(what)}.json"
        self._own = author() | {"what": what, "token": secrets.token_hex(8)}
        self._ended = threading.Event()

    def __enter__(self) -> "Turn":
        seen, since = "", time.monotonic()
        while not create_record(self._objects, self._key, self._own):
            found = self._objects.stat(self._key)
            if found is None:
                continue
            if found.generation != seen:
                seen, since = found.generation, time.monotonic()
            elif time.monotonic() - since > 6 * self._beat:
                self._objects.delete(self._key, seen)
            else:
                time.sleep(self._beat / 20)
        threading.Thread(target=self._renew, name="turn", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        try:
            if read_record(self._objects, self._key) == self._own:
                remove_record(self._objects, self._key)
        except Exception as failure:
            logger.warning("%s stays until who waits for it sees no beat: %s", self._key, failure)

    def _renew(self) -> None:
        while not self._ended.wait(self._beat):
            try:
                self._objects.renew(self._key)
            except Exception as error:
                logger.warning("%s could not be renewed: %s", self._key, error)
