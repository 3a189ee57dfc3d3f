"""Ensures one controller per experiment: a record in the store that its holder renews."""

import os
import socket
import time

from gatehouse.runtime.process import start_time
from gatehouse.store.objects.base import ObjectStore, Stat
from gatehouse.store.records import create_record, read_record
from gatehouse.store.turns import Held
from gatehouse.tuning.access.journal import FOLDER, SecondControllerError

_LOOK_SECONDS = 0.5
SILENT = 60.0
"""Seconds without a beat after which a reader takes a controller for dead."""


class ControllerLease(Held):
    """Held by the controller of an experiment, in a `with` statement.

    A controller that finds a lease watches it for three beats. If it is renewed, its holder is running, and the new
    controller is refused. If not, the holder was killed. So clocks do not matter. A holder on this machine whose
    process has ended is not watched.
    """

    def __init__(self, objects: ObjectStore, study: str, beat: float = 5.0) -> None:
        super().__init__(objects, f"{FOLDER}/{study}/controller.json", _here(), beat)

    def _take(self) -> None:
        while not create_record(self._objects, self._key, self._own):
            self._wait_for_the_other()

    def require(self) -> None:
        """Check that the lease is still held, according to the last beat.

        Raises:
            SecondControllerError: if another controller took it because it saw no beat of this one.
        """
        if self._lost:
            raise SecondControllerError(
                f"{self._key}: another controller took the experiment over, because this one did not renew its lease "
                f"for {3 * self._beat:g} s; this one ends."
            )

    def _wait_for_the_other(self) -> None:
        """Remove the lease of a holder that was killed.

        Raises:
            SecondControllerError: if the holder is running.
        """
        found, body = self._objects.stat(self._key), read_record(self._objects, self._key)
        if found is None or body is None:
            return
        until = time.monotonic() + (0 if _is_gone(body) else 3 * self._beat)
        while time.monotonic() < until:
            time.sleep(min(self._beat / 5, _LOOK_SECONDS))
            if _renewed(found, self._objects.stat(self._key)):
                raise SecondControllerError(
                    f"{self._key}: the experiment has a controller, process {body.get('process')} on "
                    f"{body.get('host')}, started by {body.get('by')} at {body.get('at')}. Wait until it ends, or stop "
                    "it with `gatehouse tuning stop`."
                )
        self._objects.delete(self._key, found.generation)


def _renewed(before: Stat, now: Stat | None) -> bool:
    return now is not None and (now.generation, now.modified) != (before.generation, before.modified)


def _here() -> dict[str, str | int]:
    return {"host": socket.gethostname(), "process": os.getpid()}


def _is_gone(holder: dict[str, str | int]) -> bool:
    """Whether the holder was a process on this machine that has ended."""
    if holder.get("host") != socket.gethostname():
        return False
    return start_time(int(holder.get("process", 0))) is None


def is_controlled(objects: ObjectStore, study: str) -> bool:
    """Whether the experiment has a controller; one that was killed on another machine counts for a minute."""
    key = f"{FOLDER}/{study}/controller.json"
    found, body = objects.stat(key), read_record(objects, key)
    return found is not None and body is not None and not _is_gone(body) and time.time() - found.modified < SILENT


def silent_seconds(objects: ObjectStore, study: str) -> float:
    """How long ago the controller of an experiment gave its last sign of life; 0 without a controller."""
    found = objects.stat(f"{FOLDER}/{study}/controller.json")
    return time.time() - found.modified if found else 0.0
