"""Runs pieces by a driver in another place: calls and answers pass through the store, and this process waits.

The calls of a stage are in `jobs/<name>/<launch>/calls`, their answers in `…/answers/<call>`. The name follows from the
run and the stage's first call, so the task that is started again finds the driver of its predecessor.
"""

import json
import logging
import os
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from gatehouse.errors import GatehouseError, PieceError
from gatehouse.pieces.driving import SCOPE, Scope
from gatehouse.pieces.engine import Engine
from gatehouse.runtime.process import in_pod
from gatehouse.store.canonical import digest_of
from gatehouse.store.records import create_record, read_records, remove_record
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore

logger = logging.getLogger(__name__)

_LOOK_SECONDS = 2.0
RAY_ADDRESS = "RAY_ADDRESS"
ENGINE, LINES, ANSWERS, KEY = "engine", "lines", "answers", "key"


class Place(Protocol):
    """A place for one driver: an object of a cluster, or a job of a running Ray cluster.

    Attributes:
        engine: The engine as the driver has it.
        lasting: Whether one driver runs all calls of a stage.
    """

    engine: Engine
    lasting: bool

    def find(self) -> str:
        """The launch of a driver that an earlier attempt of the task started, taken over; empty if there is none."""

    def start(self, launch: str, command: Sequence[str], pieces: int) -> None:
        """Start a driver by its command."""

    def has_ended(self) -> bool:
        """Whether the driver has ended well. Raises PieceError with the cause if it ended otherwise, or cannot run."""

    def remove(self) -> None:
        """End the driver, if it runs, and remove what it needed."""


class Driver:
    """A driver elsewhere, started at its first call, or found again."""

    def __init__(self, place: Place, store: ArtifactStore, name: str) -> None:
        self.place, self._store = place, store
        launch = place.find()
        self._runs = bool(launch)
        self._folder = f"jobs/{name}/{launch or uuid.uuid4().hex}"

    def answers(self, lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the answer of every call, as they come."""
        numbers = {json.loads(line)[KEY]: number for number, line in enumerate(lines)}
        call = digest_of(sorted(numbers))[:16] if self.place.lasting else "0"
        record = {ENGINE: self.place.engine.model_dump(mode="json"), LINES: list(lines)}
        create_record(self._store.objects, f"{self._folder}/calls/{call}.json", record)
        if not self._runs:
            command = ("python", "-m", "gatehouse.pieces.driver", self._store.address, self._folder)
            self.place.start(self._folder.rpartition("/")[2], command, len(lines))
            self._runs = True
        read, folder = set[str](), f"{self._folder}/answers/{call}"
        while numbers:
            ended = self.place.has_ended()  # Before the answers are read, so that none is missed.
            new = set(self._store.objects.list(folder)) - read
            for sent in read_records(self._store.objects, sorted(new)).values():
                for answer in sent[ANSWERS]:
                    if "error" in answer or answer[KEY] in numbers:
                        yield numbers.pop(answer[KEY], 0), answer
            read |= new
            if ended and numbers:
                raise PieceError(
                    f"The driver of {len(lines)} pieces has ended, {len(numbers)} of them have no answer. Run again: "
                    "pieces that were finished are kept."
                )
            if numbers:
                time.sleep(_LOOK_SECONDS)

    def close(self) -> None:
        """End it, and remove its calls and answers; results stay."""
        self.place.remove()
        try:
            for key in list(self._store.objects.list(self._folder)):
                remove_record(self._store.objects, key)
        except GatehouseError as error:
            logger.warning("%s in the store could not be removed: %s", self._folder, error)


def is_elsewhere(engine: Engine) -> bool:
    """Whether a driver elsewhere runs the pieces of an engine."""
    own_cluster = not (engine.address or os.environ.get(RAY_ADDRESS)) and in_pod()
    return engine.kind == "indexed" or (engine.kind == "ray" and (own_cluster or not engine.needs_ray))


def run_elsewhere(
    engine: Engine, store: ArtifactStore, keys: Sequence[str], lines: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The number and the answer of every call of `lines`, as they come; `keys` are those of all pieces of the calls.

    Raises PieceError if the driver cannot run where the engine says.
    """
    scope = SCOPE.get() or Scope()
    own = f"gatehouse-{digest_of([os.environ.get(RUN_ID, ''), *keys])[:16]}"
    scope.name = scope.name or own
    if not lines:
        return iter(())
    if engine.kind == "ray":
        scope.driver = scope.driver or Driver(_place(engine, scope.name), store, scope.name)
        return scope.driver.answers(lines)
    return _closing(Driver(_place(engine, own), store, own), lines)


def _closing(driver: Driver, lines: Sequence[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        yield from driver.answers(lines)
    finally:
        driver.close()


def _place(engine: Engine, name: str) -> Place:
    if engine.kind == "ray" and not engine.needs_ray:
        from gatehouse.pieces.ray_jobs import RayClusterJob

        return RayClusterJob(engine, name)
    from gatehouse.pieces.cluster_job import ClusterJob

    return ClusterJob(engine, name)
