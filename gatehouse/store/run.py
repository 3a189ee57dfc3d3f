"""The run record: events of each stage of a run, and how the run ended. Records are only added.

A stage may give several warnings, and a run that is tried again ends again: these are numbered from the second on.
"""

import json
import logging
import os
import re
import sys
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.configuration.times import zoned
from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import redacted
from gatehouse.runtime.variables import RUN_ID as RUN_ID
from gatehouse.store.records import read_record, whoami
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

REASON = "GATEHOUSE_REASON"
MACHINE = "GATEHOUSE_MACHINE"
"""Environment variables: why a person started a run, and the type of machine."""
LAST_STAGE = "GATEHOUSE_LAST_STAGE"
"""Environment variable of a run on this machine: the stage after which its task ends."""
RERUN = "GATEHOUSE_RERUN"
"""Environment variable: the stages that run whatever the memo holds, in place of those that the run recorded."""
REPORT = "report_end"
"""The stage that records the end of its run."""
END = "end.json"
"""The record of a run's first end; later ones are `end.2.json` and so on."""
_RETRY_SECONDS = 900.0
_RUN_FOLDER = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|-\d{4}(-\d\d){5}-\d+$")
"""The id of a run on a cluster, or the end of the folder of a local run: its time."""
_REPEATED = ("warned", "paused")


@dataclass(frozen=True)
class Event:
    """An event of one attempt of a stage.

    `event` is `started`, then `hit`, `finished`, `failed`, `stopped` or `tolerated`; between them `paused`, `warned`,
    and `trial` for the end of each trial of an experiment. If the same request is made again in a run, for example by a
    KFP retry, `request_digest` in the body is the same.
    """

    stage: str
    attempt: int
    event: str
    body: dict[str, Any]


class Attempt:
    """One attempt at a stage, by `number` from 1, in the run of `GATEHOUSE_RUN_ID`; without one nothing is recorded.

    `facts` are fields of every later event of this attempt, besides its own body.
    """

    def __init__(self, store: ArtifactStore, stage: str, request_digest: str = "") -> None:
        """Start an attempt, and record the start; `request_digest` identifies the request."""
        self._store = store
        self._stage = stage
        self._digest = request_digest
        self._run = os.environ.get(RUN_ID, "")
        self._began = time.time()
        self._means: dict[str, tuple[float, int]] = {}
        self._measuring = threading.Lock()
        self.facts: dict[str, Any] = {}
        self.number = 1
        if self._run:
            while not self._write("started", {"pid": os.getpid()}):
                self.number += 1

    def _write(self, event: str, body: dict[str, Any]) -> bool:
        key = f"runs/{self._run}/{self._stage}.{self.number}.{event}.json"
        digest = {"request_digest": self._digest} if self._digest else {}
        times = {"at": time.time(), "seconds": round(time.time() - self._began, 3)}
        return self._store.record(key, body | digest | times)

    def note(self, event: str, **body: Any) -> None:
        """Record an event of this attempt, without secrets; `warned` and `paused` each time, others once."""
        if not self._run:
            return
        if "message" in body:
            body["message"] = redacted(str(body["message"]))
        name, number = event, 1
        while not self._write(name, self.facts | body) and event in _REPEATED:
            number += 1
            name = f"{event}-{number}"

    def measure(self, name: str, values: Sequence[float]) -> None:
        """Add the mean of this attempt's measurements so far to every later event; from any thread."""
        with self._measuring:
            total, count = self._means.get(name, (0.0, 0))
            total, count = self._means[name] = total + sum(values), count + len(values)
            self.facts[name] = round(total / count, 3)

    @contextmanager
    def as_task(self) -> Iterator[None]:
        """In this context, measurements belong to this attempt, unless it is part of another attempt."""
        token = TASK.set(TASK.get() or self)
        try:
            yield
        finally:
            TASK.reset(token)

    def permanent_failure(self) -> dict[str, Any] | None:
        """The permanent error that an earlier attempt at the same request had in this run, or None.

        An older error does not count: somebody may have fixed the cause, and restarted the task of the same run.
        """
        for number in range(1, self.number):
            body = read_record(self._store.objects, f"runs/{self._run}/{self._stage}.{number}.failed.json")
            if body and body.get("permanent") and body.get("request_digest") == self._digest and "message" in body:
                return body if time.time() - float(body["at"]) < _RETRY_SECONDS else None
        return None

    def warn(self, message: str) -> None:
        """Log and record a warning, without secrets."""
        logger.warning("%s", redacted(message))
        self.note("warned", message=message)

    def provenance(self, references: Iterable[str]) -> None:
        """Record for each reference who made it, in which run, when, and with which key and code."""
        for reference in references:
            body = {"run": self._run, "stage": self._stage, "attempt": self.number, "at": time.time(), "by": whoami()}
            body |= {"why": os.environ.get(REASON, "")} | self.facts
            self._store.append(f"provenance/{reference}", body)


TASK: ContextVar[Attempt | None] = ContextVar("gatehouse_task", default=None)
"""The attempt of the outermost stage in this context."""


def run_id() -> str:
    """The id of the run that this process belongs to, whatever started it.

    That is `GATEHOUSE_RUN_ID`, which components take from KFP's label of the pod; else the run in the path that KFP
    gives a task for its outputs: its id on a cluster, and the folder of the run with the local runner; else a new id,
    of this process alone.
    """
    if run := os.environ.get(RUN_ID):
        return run
    folders = [folder for folder in _output().parts[-4:-2] if _RUN_FOLDER.search(folder)]
    return folders[0] if folders else f"unnamed-{uuid.uuid4().hex[:12]}"


def task_id() -> str:
    """Identifies the task of this process, the same for all its attempts."""
    # KFP repeats the container of a task, and not the driver, which names the folder of its outputs.
    return f"{run_id()} {_output().parent}"


def _output() -> Path:
    """The file to which this KFP task writes its outputs; an empty path outside of KFP."""
    with suppress(ValueError, IndexError, KeyError, TypeError):
        return Path(json.loads(sys.argv[sys.argv.index("--executor_input") + 1])["outputs"]["outputFile"])
    return Path()


def events(
    store: ArtifactStore, run: str, seen: Set[str] = frozenset(), *, trials: bool = False
) -> Iterator[tuple[str, Event]]:
    """The events of a run, as pairs of key and event in order of keys, without the keys in `seen`.

    An experiment may have thousands of trials, each with its end in its own object. Without `trials`, only the one with
    the highest number is read, as a sign of life.
    """
    keys = list(store.objects.list(f"runs/{run}"))
    if not trials:
        seen = seen | set(sorted((key for key in keys if ".trial-" in key), key=lambda key: (len(key), key))[:-1])
    for key in keys:
        parts = key.rsplit("/", 1)[1].split(".")
        if key in seen or len(parts) != 4 or not parts[1].isdigit() or parts[3] != "json":
            continue
        if (body := read_record(store.objects, key)) is not None:
            yield key, Event(parts[0], int(parts[1]), parts[2].partition("-")[0], body)


def recorded_runs(store: ArtifactStore) -> dict[str, set[str]]:
    """The names of the records of every run, by its id."""
    names: dict[str, set[str]] = {}
    for key in store.objects.list("runs"):
        _, run, name = key.split("/", 2)
        names.setdefault(run, set()).add(name)
    return names


def end_name(number: int) -> str:
    """The name of the record of a run's first end (1), or of a later one."""
    return END if number == 1 else f"end.{number}.json"


def end_number(names: Iterable[str]) -> int:
    """How often a run has ended, from the names of its records; more than once if it was tried again."""
    return sum(name == END or (name.startswith("end.") and name.endswith(".json")) for name in names)


def end_of(store: ArtifactStore, run: str) -> dict[str, Any] | None:
    """The record of a run's last end, with its number as `number`, or None if no end is recorded."""
    number = end_number(key.rsplit("/", 1)[1] for key in store.objects.list(f"runs/{run}"))
    body = read_record(store.objects, f"runs/{run}/{end_name(number)}") if number else None
    return None if body is None else body | {"number": number}


def record_rerun(store: ArtifactStore, run: str, rerun: str) -> None:
    """Record the stages that a run forces, as `stage[,stage…]` with an optional `@nonce`, for its later tasks."""
    if run and rerun:
        store.record(f"runs/{run}/rerun.json", {"rerun": rerun})


def rerun_of(store: ArtifactStore, run: str) -> str:
    """The stages that a run forces: `GATEHOUSE_RERUN`, else those that its first task recorded; empty for none."""
    if rerun := os.environ.get(RERUN):
        return rerun
    recorded = read_record(store.objects, f"runs/{run}/rerun.json") if run else None
    return str(recorded["rerun"]) if recorded else ""


def require_span(parameters: Mapping[str, Any]) -> None:
    """Raise ConfigurationError if `since` or `until` is not a time with a zone, or `since` is not the earlier one."""
    texts = {name: str(parameters.get(name) or "") for name in ("since", "until")}
    times = [zoned(name, text) for name, text in texts.items() if text]
    if len(times) == 2 and times[0] >= times[1]:
        raise ConfigurationError(f"since: expected a time before until ({texts['until']}), found {texts['since']}.")
