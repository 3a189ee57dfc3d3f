"""Stores the state of a running experiment that is not in a database: in create-only objects of the artifact store.

`tuning/<study>/journal/<n>.json` holds lines of Optuna's journal that were written together.
`tuning/<study>/blocks/<n>.json` holds the lines of many such objects again, so that few objects must be read.
`tuning/<study>/about.json` describes the experiment, and `tuning/<study>/stop.json` asks its controller to end.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from itertools import count, takewhile
from typing import Any

from optuna.storages.journal import BaseJournalBackend

from gatehouse.errors import GatehouseError, StoreError
from gatehouse.store.objects.base import ObjectStore
from gatehouse.store.records import author, create_record, read_record, read_records, remove_record

FOLDER = "tuning"
BLOCK = 500
"""Number of journal objects per block. It is part of the format: readers depend on it."""


class SecondControllerError(GatehouseError):
    """Another controller runs the same experiment."""


class StoreJournal(BaseJournalBackend):
    """Optuna's journal in an artifact store. Lines are buffered until `flush` writes them as one object.

    So lines that belong together, such as a trial and all its parameters, are written together or not at all.
    """

    def __init__(self, objects: ObjectStore, study: str) -> None:
        self._objects, self._folder = objects, f"{FOLDER}/{study}"
        held = set(objects.list(f"{self._folder}/blocks"))
        known = list(takewhile(held.__contains__, map(self._block, count())))  # Lines of a lost block are in `journal`.
        blocks = read_records(objects, known)
        self._lines: list[dict[str, Any]] = [line for body in blocks.values() for line in body["lines"]]
        self._blocks, self._blocked = len(blocks), len(self._lines)
        later = sorted(objects.list(f"{self._folder}/journal"))[self._blocks * BLOCK :]
        self._counts: list[int] = []
        for body in read_records(objects, later).values():
            self._lines.extend(body["lines"])
            self._counts.append(len(body["lines"]))
        self._flushed = len(self._lines)

    def read_logs(self, log_number_from: int) -> list[dict[str, Any]]:
        """The lines from this number on, including buffered ones."""
        return self._lines[log_number_from:]

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Buffer lines until `flush`."""
        self._lines.extend(json.loads(json.dumps(logs)))

    def flush(self) -> None:
        """Write the buffered lines.

        Raises:
            SecondControllerError: if another controller has written in the meantime.
        """
        kept = self._lines[self._flushed :]
        if not kept:
            return
        key = f"{self._folder}/journal/{self._blocks * BLOCK + len(self._counts):08d}.json"
        if not create_record(self._objects, key, {"lines": kept}):
            raise SecondControllerError(
                f"{key} was written by another controller of this experiment, which continues; this one ends. Run only "
                "one controller of an experiment at a time."
            )
        self._flushed = len(self._lines)
        self._counts.append(len(kept))
        if len(self._counts) >= BLOCK:
            end = self._blocked + sum(self._counts[:BLOCK])
            with suppress(StoreError):  # The lines are written; a block only saves time.
                create_record(self._objects, self._block(self._blocks), {"lines": self._lines[self._blocked : end]})
            self._blocks, self._blocked, self._counts = self._blocks + 1, end, self._counts[BLOCK:]

    def _block(self, number: int) -> str:
        return f"{self._folder}/blocks/{number:06d}.json"


def remember(objects: ObjectStore, study: str, about: dict[str, Any], run: str = "") -> None:
    """Describe an experiment for commands that list or resume it, replacing an earlier description.

    An earlier stop request is withdrawn, unless the same run starts again, as KFP does after an eviction.

    Args:
        objects: The store.
        study: Key of the experiment.
        about: Its request, among other things. Only the controller with the lease may call this.
        run: The pipeline run that asks for it; empty for none.
    """
    key = f"{FOLDER}/{study}/about.json"
    known = read_record(objects, key)
    if not run or known is None or known.get("run") != run:
        withdraw_stop(objects, study)
    if known != about | {"run": run}:
        if known is not None:
            remove_record(objects, key)
        create_record(objects, key, about | {"run": run})


def ask_to_stop(objects: ObjectStore, study: str) -> bool:
    """Ask the controller of an experiment to end; False if it was asked already."""
    return create_record(objects, f"{FOLDER}/{study}/stop.json", author())


def withdraw_stop(objects: ObjectStore, study: str) -> None:
    """Withdraw the stop request of an experiment."""
    remove_record(objects, f"{FOLDER}/{study}/stop.json")


def is_asked_to_stop(objects: ObjectStore, study: str) -> bool:
    """Whether the controller of an experiment was asked to end."""
    return read_record(objects, f"{FOLDER}/{study}/stop.json") is not None


def studies(objects: ObjectStore) -> Iterator[tuple[str, dict[str, Any]]]:
    """The experiments of a store: the key of each, and its description from `remember`."""
    for study in objects.folders(FOLDER):
        if (about := read_record(objects, f"{FOLDER}/{study}/about.json")) is not None:
            yield study, about
