"""Pieces that a driver runs elsewhere: calls and answers go through the store, whatever is lost on the way."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from gatehouse.errors import ConfigurationError, PieceError
from gatehouse.pieces import elsewhere
from gatehouse.pieces.driving import driving
from gatehouse.pieces.engine import Engine
from gatehouse.runtime.variables import ENGINE
from tests.pieces.ray_cluster import ray_cluster
from tests.pieces.test_pieces import Squares

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def squares(tmp_path: Path) -> Squares:
    return Squares(tmp_path)


class Pods:
    """A place of processes: one for each piece, as those of an Indexed Job, which start again where they are killed."""

    lasting = False
    launches: ClassVar[dict[str, str]] = {}

    def __init__(self, engine: Engine, name: str) -> None:
        self.engine, self.name = engine, name
        self.processes = list[subprocess.Popen[bytes]]()
        self.removed = 0

    def find(self) -> str:
        return self.launches.get(self.name, "")

    def start(self, launch: str, command: Sequence[str], pieces: int) -> None:
        self.launches[self.name] = launch
        for index in range(pieces):
            self.processes.append(subprocess.Popen([sys.executable, *command[1:], f"--index={index}"]))

    def has_ended(self) -> bool:
        for number, process in enumerate(self.processes):
            if process.poll() == -signal.SIGKILL:
                self.processes[number] = subprocess.Popen(process.args)
        return all(process.poll() is not None for process in self.processes)

    def remove(self) -> None:
        self.removed += 1
        del self.launches[self.name]
        for process in self.processes:
            process.wait()


@pytest.fixture
def places(monkeypatch: pytest.MonkeyPatch) -> list[Pods]:
    """The places of an engine that is elsewhere, as they come."""
    places = list[Pods]()

    def place(engine: Engine, name: str) -> Pods:
        places.append(Pods(engine, name))
        return places[-1]

    monkeypatch.setattr(elsewhere, "_place", place)
    monkeypatch.setattr(elsewhere, "_LOOK_SECONDS", 0.1)
    monkeypatch.setenv(ENGINE, '{"kind": "indexed", "memory": "1G"}')
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    return places


def test_each_piece_runs_once_and_nothing_but_results_stays(squares: Squares, places: list[Pods]) -> None:
    assert squares.run(5, 3, 4) == [25, 9, 16]
    assert squares.run(4, 2, 5) == [16, 4, 25]
    assert squares.ran() == dict.fromkeys((2, 3, 4, 5), 1)
    assert [place.removed for place in places] == [1, 1]
    assert list(squares.store.objects.list("jobs")) == []


def test_a_killed_pod_starts_again(squares: Squares, places: list[Pods]) -> None:
    assert squares.run(6, 7, deaths=1) == [36, 49]
    assert squares.ran() == {6: 2, 7: 2}


def test_an_error_is_that_of_the_piece(squares: Squares, places: list[Pods]) -> None:
    with pytest.raises(ConfigurationError, match="number: found 8"):
        squares.run(8, fails="ours")
    with pytest.raises(PieceError, match="ValueError: found 8"):
        squares.run(8, fails="another")
    assert [place.removed for place in places] == [1, 1]


def test_a_driver_that_leaves_no_answer_is_an_error(
    squares: Squares, places: list[Pods], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pods, "start", lambda *arguments: None)
    monkeypatch.setattr(Pods, "remove", lambda self: None)
    with pytest.raises(PieceError, match="2 of them have no answer"):
        squares.run(1, 2)


def test_a_task_that_is_started_again_finds_its_driver(squares: Squares, places: list[Pods]) -> None:
    class KilledError(BaseException):
        """The end of a process that cleans nothing up."""

    def killed(self: Pods) -> None:
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pods, "has_ended", killed)
        patch.setattr(Pods, "remove", lambda self: None)
        patch.setattr(elsewhere, "remove_record", lambda *arguments: None)
        with pytest.raises(KilledError):
            squares.run(1, 2)
    for process in places[0].processes:
        process.wait()
    assert squares.ran() == {1: 1, 2: 1}
    assert squares.run(1, 2) == [1, 4], "the results are remembered, and no driver is needed"
    assert squares.ran() == {1: 1, 2: 1}


@pytest.mark.parametrize("kind", ["ray", "indexed"])
def test_pods_are_started_from_a_pod_alone(squares: Squares, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.delenv("KFP_POD_NAME", raising=False)
    monkeypatch.setenv(ENGINE, json.dumps({"kind": kind}))
    with pytest.raises(ConfigurationError, match="KFP_POD_NAME"):
        squares.run(1)


def test_a_job_of_a_ray_cluster_runs_the_calls_of_a_stage(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    with ray_cluster(token="a" * 64, dashboard=True) as address:
        monkeypatch.setenv(ENGINE, json.dumps({"kind": "ray", "workers": 2, "address": address}))
        with pytest.raises(PieceError, match="RAY_AUTH_TOKEN"):
            squares.run(1)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "a" * 64)
        with driving():
            assert squares.run(5, 3, deaths=1) == [25, 9]
            began = time.monotonic()
            assert squares.run(4, 3) == [16, 9]
            assert time.monotonic() - began < 20, "the driver is there already"
            with pytest.raises(ConfigurationError, match="number: found 8"):
                squares.run(8, fails="ours")
        assert squares.ran() == {3: 3, 4: 1, 5: 2, 8: 1}, "3 with other deaths is another piece"
        assert list(squares.store.objects.list("jobs")) == []
