"""The state of an experiment in create-only objects of the artifact store: its journal, and its controller's lease.

`tuning/<study>/journal/<n>.json` holds lines of Optuna's journal that were written together.
`tuning/<study>/about.json` describes the experiment, `tuning/<study>/stop.json` asks its controller to end, and
`tuning/<study>/controller.json` is the lease of its controller.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from gatehouse.errors import GatehouseError
from gatehouse.runtime.process import start_time
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record, read_records, remove_record
from gatehouse.store.turns import RenewedRecord

FOLDER = "tuning"
SILENT = 60.0
"""Seconds without a beat after which a reader considers a controller dead."""
_LOOK_SECONDS = 0.5


class SecondControllerError(GatehouseError):
    """Another controller runs the same experiment."""


class StoreJournal(BaseJournalBackend):
    """The backend of Optuna's `JournalStorage` in an artifact store.

    Lines are buffered until `flush` writes them as one object, so lines that belong together, such as a trial and all
    its parameters, are written together or not at all.
    """

    def __init__(self, objects: ObjectStore, study: str) -> None:
        self._objects, self._folder = objects, f"{FOLDER}/{study}/journal"
        written = read_records(objects, sorted(objects.list(self._folder)))
        self._lines: list[dict[str, Any]] = [line for body in written.values() for line in body["lines"]]
        self._written, self._flushed = len(written), len(self._lines)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The lines from this number on, including buffered ones."""
        return self._lines[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Buffer lines until `flush`."""
        self._lines.extend(json.loads(json.dumps(logs)))

    def flush(self) -> None:
        """Write the buffered lines. Raises SecondControllerError if another controller has written in the meantime."""
        if buffered := self._lines[self._flushed :]:
            key = f"{self._folder}/{self._written:08d}.json"
            if not create_record(self._objects, key, {"lines": buffered}):
                raise SecondControllerError(
                    f"{key} was written by another controller of this experiment, which continues; this one ends."
                )
            self._written, self._flushed = self._written + 1, len(self._lines)


def remember(objects: ObjectStore, study: str, about: dict[str, Any], run: str = "") -> None:
    """Describe an experiment for commands that list or resume it, replacing an earlier description.

    An earlier stop request is withdrawn, unless the same pipeline run starts again, as KFP does after an eviction. Only
    the controller with the lease may call this.
    """
    key = f"{FOLDER}/{study}/about.json"
    earlier = read_record(objects, key)
    if not run or earlier is None or earlier.get("run") != run:
        remove_record(objects, f"{FOLDER}/{study}/stop.json")
    if earlier != about | {"run": run}:
        if earlier is not None:
            remove_record(objects, key)
        create_record(objects, key, about | {"run": run})


def ask_to_stop(objects: ObjectStore, study: str) -> bool:
    """Ask the controller of an experiment to end; False if it was asked already."""
    return create_record(objects, f"{FOLDER}/{study}/stop.json", author())


def is_asked_to_stop(objects: ObjectStore, study: str) -> bool:
    """Whether the controller of an experiment was asked to end."""
    return read_record(objects, f"{FOLDER}/{study}/stop.json") is not None


def studies(objects: ObjectStore) -> Iterator[tuple[str, dict[str, Any]]]:
    """The experiments of a store: the key of each, and its description from `remember`."""
    for study in objects.folders(FOLDER):
        if (about := read_record(objects, f"{FOLDER}/{study}/about.json")) is not None:
            yield study, about


class ControllerLease(RenewedRecord):
    """The heartbeat of the only controller of an experiment, for a `with` statement.

    Optuna's own heartbeat needs a database, and fails the trials of a dead process; here the next controller continues
    them. A controller that finds a lease watches it for three beats. If it is renewed, its holder is running, and the
    new controller is refused. If not, the holder was killed. So clocks do not matter. A holder on this machine whose
    process has ended is not watched. One that was only suspended ends when it next writes to the journal.
    """

    def __init__(self, objects: ObjectStore, study: str, beat: float = 5.0) -> None:
        super().__init__(
            objects, f"{FOLDER}/{study}/controller.json", {"host": socket.gethostname(), "process": os.getpid()}, beat
        )

    def _take(self) -> None:
        while not create_record(self._objects, self._key, self._own):
            before, body = self._objects.stat(self._key), read_record(self._objects, self._key)
            if before is None or body is None:
                continue
            until = time.monotonic() + (0 if _is_gone(body) else 3 * self._beat)
            while time.monotonic() < until:
                time.sleep(min(self._beat / 5, _LOOK_SECONDS))
                now = self._objects.stat(self._key)
                if now is not None and (now.generation, now.modified) != (before.generation, before.modified):
                    raise SecondControllerError(
                        f"{self._key}: the experiment has a controller, process {body.get('process')} on "
                        f"{body.get('host')}, started by {body.get('by')} at {body.get('at')}. Wait until it ends, or "
                        "stop it with `gatehouse tuning stop`."
                    )
            self._objects.delete(self._key, before.generation)


def _is_gone(holder: dict[str, str | int]) -> bool:
    """Whether the holder was a process on this machine that has ended."""
    return holder.get("host") == socket.gethostname() and start_time(int(holder.get("process", 0))) is None


def silent_seconds(objects: ObjectStore, study: str) -> float | None:
    """How long ago the controller of an experiment gave its last sign of life; None without a running controller.

    A controller that was killed on another machine counts as running for a minute.
    """
    key = f"{FOLDER}/{study}/controller.json"
    beat, body = objects.stat(key), read_record(objects, key)
    if beat is None or body is None or _is_gone(body) or time.time() - beat.modified >= SILENT:
        return None
    return time.time() - beat.modified
