"""The state of an experiment in create-only objects of the artifact store: its journal, and its controller's turn.

`tuning/<study>/journal/<n>.json` holds lines of Optuna's journal that were written together.
`tuning/<study>/about.json` describes the experiment, `tuning/<study>/stop.json` asks its controller to end, and
`tuning/<study>/controller.json` is the turn of its controller.
"""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from gatehouse.errors import GatehouseError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record, read_records, remove_record
from gatehouse.store.turns import Turn, is_gone

FOLDER = "tuning"
SILENT = 60.0
"""Seconds without a beat after which a reader considers a controller dead."""


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
    """Describe an experiment for those who list it, replacing an earlier description.

    An earlier stop request is withdrawn, unless the same pipeline run starts again, as KFP does after an eviction. Only
    the controller whose turn it is may call this.
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
    """The experiments of a store: the key of each, and its description from `remember`.

    Those of earlier releases, with which nothing goes on, are described in another form, and left out.
    """
    for study in objects.folders(FOLDER):
        if "experiment" in (about := read_record(objects, f"{FOLDER}/{study}/about.json") or {}):
            yield study, about


def controller_turn(objects: ObjectStore, study: str, beat: float = 5.0) -> Turn:
    """The turn of the only controller of an experiment: a second one is refused while the first lives.

    Optuna's own heartbeat needs a database, and fails the trials of a dead process; here the next controller continues
    them. A controller that was only suspended ends when it next writes to the journal.
    """
    key = f"{FOLDER}/{study}/controller.json"

    def refusal(holder: Mapping[str, Any]) -> GatehouseError:
        return SecondControllerError(
            f"{key}: the experiment has a controller, process {holder.get('process')} on {holder.get('host')}, started "
            f"by {holder.get('by')} at {holder.get('at')}. Wait until it ends, or stop it with `gatehouse tuning stop`."
        )

    return Turn(objects, f"experiment {study}", beat, key=key, refusal=refusal)


def silent_seconds(objects: ObjectStore, study: str) -> float | None:
    """How long ago the controller of an experiment gave its last sign of life; None without a running controller.

    A controller that was killed on another machine counts as running for a minute.
    """
    key = f"{FOLDER}/{study}/controller.json"
    beat, body = objects.stat(key), read_record(objects, key)
    if beat is None or body is None or is_gone(body) or time.time() - beat.modified >= SILENT:
        return None
    return time.time() - beat.modified
