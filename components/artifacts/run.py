"""The run record: what happened to each stage of a run, and how it ended. Records are only ever added.

A stage may leave several warnings, and a run that is tried again ends again: from the second on these are numbered.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from gatehouse.components.artifacts.records import read_record, whoami
from gatehouse.components.artifacts.redaction import redacted
from gatehouse.components.artifacts.store import ArtifactStore

logger = logging.getLogger(__name__)

RUN_ID = "GATEHOUSE_RUN_ID"
REASON = "GATEHOUSE_REASON"
MACHINE = "GATEHOUSE_MACHINE"
"""Variables of the environment: the run that a process belongs to, why a person started it, and the type of machine."""
END = "end.json"
"""The record of a run's first end; those of later ones are `end.2.json` and so on."""
_RETRY_SECONDS = 900.0
_REPEATED = ("warned", "paused")


@dataclass(frozen=True)
class Event:
    """One thing that happened to one attempt of a stage.

    `event` is `started`, then `hit`, `finished`, `failed`, `stopped` or `tolerated`; between them `paused`, `warned`,
    and `trial` for the end of each trial of an experiment. What is asked for again in the same run, as a task that KFP
    tries again, has the same `asked`.
    """

    stage: str
    attempt: int
    event: str
    body: dict[str, Any]


class Attempt:
    """One attempt at a stage within the run that `GATEHOUSE_RUN_ID` names. Without a run nothing is recorded."""

    def __init__(self, store: ArtifactStore, stage: str, asked: str = "") -> None:
        """Begin an attempt, and record that.

        Args:
            store: Holds the run record.
            stage: The stage.
            asked: What identifies the request.
        """
        self._store = store
        self._stage = stage
        self._asked = asked
        self._run = os.environ.get(RUN_ID, "")
        self._number = 1
        self._began = time.time()
        self.facts: dict[str, Any] = {}
        """What every later event of this attempt says besides its own body."""
        self._means: dict[str, tuple[float, int]] = {}
        self._measuring = threading.Lock()
        if self._run:
            while not self._write("started", {"pid": os.getpid()}):
                self._number += 1

    def _write(self, event: str, body: dict[str, Any]) -> bool:
        key = f"runs/{self._run}/{self._stage}.{self._number}.{event}.json"
        asked = {"asked": self._asked} if self._asked else {}
        return self._store.record(
            key, body | asked | {"at": time.time(), "seconds": round(time.time() - self._began, 3)}
        )

    def note(self, event: str, **body: Any) -> None:
        """Record an event of this attempt; `warned` and `paused` each time, others once, without secrets."""
        if not self._run:
            return
        if "message" in body:
            body["message"] = redacted(str(body["message"]))
        name, number = event, 1
        while not self._write(name, self.facts | body) and event in _REPEATED:
            number += 1
            name = f"{event}-{number}"

    def measure(self, name: str, values: Sequence[float]) -> None:
        """Say in every later event the mean of what was measured in this attempt, now and before; from any thread."""
        with self._measuring:
            total, count = self._means.get(name, (0.0, 0))
            total, count = self._means[name] = total + sum(values), count + len(values)
            self.facts[name] = round(total / count, 3)

    @contextmanager
    def as_task(self) -> Iterator[None]:
        """In this context what is measured belongs to this attempt, unless it is part of another already."""
        token = TASK.set(TASK.get() or self)
        try:
            yield
        finally:
            TASK.reset(token)

    @property
    def number(self) -> int:
        """Which attempt at the stage it is, from 1."""
        return self._number

    def found_before(self) -> dict[str, Any] | None:
        """The permanent error that an earlier attempt at the same found in this run, or None.

        An older one does not count: somebody may have mended the cause, and had the task of the same run tried again.
        """
        for number in range(1, self._number):
            body = read_record(self._store.objects, f"runs/{self._run}/{self._stage}.{number}.failed.json")
            if body and body.get("permanent") and body.get("asked") == self._asked and "message" in body:
                return body if time.time() - float(body["at"]) < _RETRY_SECONDS else None
        return None

    def warn(self, message: str) -> None:
        """Log a warning, and record it, without secrets."""
        message = redacted(message)
        logger.warning("%s", message)
        self.note("warned", message=message)

    def provenance(self, references: Iterable[str]) -> None:
        """Record of each reference who made it, in which run, when, and under which key of which code."""
        for reference in references:
            body = {"run": self._run, "stage": self._stage, "attempt": self._number, "at": time.time(), "by": whoami()}
            body |= {"why": os.environ.get(REASON, "")} | self.facts
            self._store.append(f"provenance/{reference}", body)


TASK: ContextVar[Attempt | None] = ContextVar("gatehouse_task", default=None)
"""The attempt that all which happens in this context is part of: of the outermost stage."""


def events(
    store: ArtifactStore, run: str, known: Set[str] = frozenset(), *, trials: bool = False
) -> Iterator[tuple[str, Event]]:
    """What happened in a run, as pairs of key and event in order of keys.

    Args:
        store: Holds the run record.
        run: Id of the run.
        known: Keys to leave out, as they were read before.
        trials: Whether the end of each trial of an experiment counts too. There may be thousands, and each is an object
            of its own, so else only that of the highest number is read, as a sign of life.
    """
    keys = list(store.objects.list(f"runs/{run}"))
    if not trials:
        known = known | set(sorted((key for key in keys if ".trial-" in key), key=lambda key: (len(key), key))[:-1])
    for key in keys:
        parts = key.rsplit("/", 1)[1].split(".")
        if key not in known and len(parts) == 4 and parts[1].isdigit() and parts[3] == "json":
            yield (
                key,
                Event(parts[0], int(parts[1]), parts[2].partition("-")[0], json.loads(store.objects.get_bytes(key))),
            )


def recorded_runs(store: ArtifactStore) -> dict[str, set[str]]:
    """The names of the records of every run, by its id."""
    found: dict[str, set[str]] = {}
    for key in store.objects.list("runs"):
        _, run, name = key.split("/", 2)
        found.setdefault(run, set()).add(name)
    return found


def end_name(number: int) -> str:
    """The name of the record of a run's first end (1), or of a later one."""
    return END if number == 1 else f"end.{number}.json"


def end_number(names: Iterable[str]) -> int:
    """How often a run has ended, by the names of its records; more than once where it was tried again."""
    return sum(name == END or (name.startswith("end.") and name.endswith(".json")) for name in names)


def end_of(store: ArtifactStore, run: str) -> dict[str, Any] | None:
    """The record of a run's last end, with its number as `number`, or None where nobody has recorded one."""
    number = end_number(key.rsplit("/", 1)[1] for key in store.objects.list(f"runs/{run}"))
    body = read_record(store.objects, f"runs/{run}/{end_name(number)}") if number else None
    return None if body is None else body | {"number": number}
