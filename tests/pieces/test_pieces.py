"""Pieces: each runs once, wherever it runs, and whoever is killed meanwhile."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import ConfigurationError, PieceError, WrongImageError
from gatehouse.pieces import local
from gatehouse.pieces.driving import driving
from gatehouse.pieces.engine import Engine, engine_of
from gatehouse.pieces.local import ATTEMPTS
from gatehouse.pieces.piece import run_pieces
from gatehouse.pieces.worker import _run
from gatehouse.reports.format import work_in_words
from gatehouse.runtime import limits
from gatehouse.runtime.process import descendants
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.hidden_values import hiding
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore
from tests.pieces.ray_cluster import ray_cluster
from tests.pieces.squares import SquareRequest, square

pytestmark = pytest.mark.timeout(900)


class Squares:
    """A store, and a folder in which each piece leaves a line for each time that it ran."""

    def __init__(self, folder: Path) -> None:
        self.store, self.folder = ArtifactStore.open(folder / "store"), folder / "lines"
        self.folder.mkdir()

    def run(self, *numbers: int, **more: Any) -> list[int]:
        requests = [SquareRequest(number=number, folder=str(self.folder), **more) for number in numbers]
        return [result.square for result in run_pieces(self.store, [(square, request) for request in requests])]

    def workers(self) -> set[int]:
        """The processes in which pieces ran."""
        return {int(line) for path in self.folder.iterdir() for line in path.read_text().splitlines()}

    def ran(self) -> dict[int, int]:
        return {int(path.name): len(path.read_text().splitlines()) for path in self.folder.iterdir()}


@pytest.fixture
def squares(tmp_path: Path) -> Squares:
    return Squares(tmp_path)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


@pytest.fixture(params=["local", "ray"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two workers, here or on Ray."""
    address = request.getfixturevalue("cluster") if request.param == "ray" else ""
    monkeypatch.setenv(ENGINE, json.dumps({"kind": request.param, "workers": 2, "address": address}))
    return str(request.param)


@pytest.mark.usefixtures("engine")
def test_results_are_in_order_and_each_piece_runs_once(squares: Squares) -> None:
    assert squares.run(5, 3, 4) == [25, 9, 16]
    assert squares.run(4, 2, 5, 1) == [16, 4, 25, 1]
    assert squares.ran() == dict.fromkeys((1, 2, 3, 4, 5), 1)


def test_workers_stay_for_the_next_calls_of_a_stage_and_one_that_dies_idle_costs_no_try(
    squares: Squares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENGINE, '{"workers": 2}')
    monkeypatch.setattr(local, "ATTEMPTS", 1)
    with driving():
        squares.run(1, 2)
        assert squares.run(3, 4, 11, 12) == [9, 16, 121, 144]
        assert len(squares.workers()) <= 2, "the same two"
        for worker in squares.workers():  # Not all children of this process: a Ray cluster is one, too.
            os.kill(worker, signal.SIGKILL)
            os.waitid(os.P_PID, worker, os.WEXITED | os.WNOWAIT)
        assert squares.run(5, 6) == [25, 36]
        with pytest.raises(ConfigurationError):
            squares.run(7, 8, fails="ours")
        assert squares.run(9, 10) == [81, 100], "an error ends the workers of its calls alone"
    assert not squares.workers() & set(descendants(os.getpid()))


@pytest.mark.usefixtures("engine")
def test_ten_workers_are_killed_and_the_results_stay(squares: Squares) -> None:
    deaths = dict(enumerate(random.Random(3).choices(range(4), k=8)))
    requests = [SquareRequest(number=number, folder=str(squares.folder), deaths=deaths[number]) for number in deaths]
    assert sum(deaths.values()) >= 10
    assert [result.square for result in run_pieces(squares.store, [(square, each) for each in requests])] == [
        number**2 for number in deaths
    ]
    assert squares.ran() == {number: died + 1 for number, died in deaths.items()}


@pytest.mark.usefixtures("engine")
def test_a_worker_that_is_killed_each_time_is_an_error(squares: Squares) -> None:
    with pytest.raises(PieceError, match=r"engine\.memory"):
        squares.run(1, 2, deaths=ATTEMPTS + 1)
    assert max(squares.ran().values()) == ATTEMPTS


@pytest.mark.usefixtures("engine")
def test_an_error_comes_as_it_is_and_without_hidden_values(squares: Squares) -> None:
    with pytest.raises(ConfigurationError, match="number: found"):
        squares.run(7, 8, fails="ours")
    with pytest.raises(PieceError, match="ValueError: found"):
        squares.run(7, 8, fails="another")
    with hiding(lambda: ["number"]), pytest.raises(ConfigurationError, match="not shown") as raised:
        squares.run(17, 18, fails="ours")
    assert "17" not in str(raised.value) and "18" not in str(raised.value)


def test_a_lone_piece_runs_in_this_process(squares: Squares) -> None:
    squares.run(6)
    assert (squares.folder / "6").read_text() == f"{os.getpid()}\n"


def test_a_worker_with_other_code_refuses_the_piece(squares: Squares) -> None:
    request = SquareRequest(number=7, folder=str(squares.folder))
    for key in ("of other code", square.key(request, "forced")):
        with pytest.raises(WrongImageError):
            _run(square.name, request.model_dump(mode="json"), key, "", squares.store.address)
    assert not squares.ran()


def test_workers_share_processors_and_memory(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, '{"workers": 2, "memory": "512Mi"}')
    requests = [SquareRequest(number=number, folder=str(squares.folder)) for number in range(2)]
    results = run_pieces(squares.store, [(square, request) for request in requests])
    assert [(result.processors, result.memory) for result in results] == [(1, 512 << 20)] * 2


def test_workers_of_several_processors_are_fewer(squares: Squares, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENGINE, json.dumps({"cpus": limits.processors()}))
    requests = [SquareRequest(number=number, folder=str(squares.folder)) for number in range(2)]
    results = run_pieces(squares.store, [(square, request) for request in requests])
    assert len({path.read_text() for path in squares.folder.iterdir()}) == 1, "one worker ran both"
    assert {result.processors for result in results} == {limits.processors()}


def test_the_memory_of_workers_is_without_that_of_their_driver(squares: Squares) -> None:
    ballast, attempt = b"x" * 400_000_000, Attempt(squares.store, "stage")
    with attempt.as_task():
        squares.run(1, 2)
    (work,) = attempt.facts["pieces"]
    assert work["pieces"] == 2 and 0 < work["memory"] < len(ballast)
    assert work_in_words(attempt.facts).startswith("2 pieces, the slowest ")


_DRIVER = """
import sys
from pathlib import Path
from gatehouse.pieces.piece import run_pieces
from gatehouse.store.store import ArtifactStore
from tests.pieces.squares import SquareRequest, square
requests = [SquareRequest(number=number, folder=sys.argv[2], seconds=0.4) for number in range(8)]
print([result.square for result in run_pieces(ArtifactStore.open(sys.argv[1]), [(square, each) for each in requests])])
"""


@pytest.mark.usefixtures("engine")
def test_a_driver_is_killed_three_times_and_the_next_goes_on(squares: Squares) -> None:
    command = [sys.executable, "-c", _DRIVER, squares.store.address, str(squares.folder)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    for kill in range(1, 4):
        driver = subprocess.Popen(command, env=variables)
        while driver.poll() is None and sum(squares.ran().values()) < 2 * kill:
            time.sleep(0.02)
        workers = descendants(driver.pid)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        _wait_for_end(workers)
    output = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert output.splitlines()[-1] == str([number**2 for number in range(8)])
    assert sum(squares.ran().values()) <= 8 + 3 * 2, "only pieces that were running run again"


@pytest.mark.parametrize("dashboard", [False, True], ids=["connected", "as a job"])
def test_a_cluster_is_lost_and_a_repeat_on_another_goes_on(squares: Squares, dashboard: bool) -> None:
    impatient = "import gatehouse.pieces.ray_jobs as jobs; jobs._SECONDS = 4.0\n"
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    variables["RAY_gcs_rpc_server_reconnect_timeout_s"] = "5"  # Ray itself looks for a lost head for a minute.

    def started(address: str, program: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", program, squares.store.address, str(squares.folder)]
        engine = {ENGINE: json.dumps({"kind": "ray", "workers": 2, "address": address})}
        return subprocess.Popen(command, env=variables | engine, text=True, stdout=subprocess.PIPE)

    with ray_cluster(dashboard=dashboard) as address:
        driver = started(address, impatient + _DRIVER)
        while driver.poll() is None and sum(squares.ran().values()) < 3:
            time.sleep(0.02)
    assert driver.wait(240) != 0
    with ray_cluster(dashboard=dashboard) as address:
        output, _ = started(address, _DRIVER).communicate()
    assert output.splitlines()[-1] == str([number**2 for number in range(8)])
    assert sum(squares.ran().values()) <= 8 + 2, "only pieces that were running run again"


def _wait_for_end(pids: list[int]) -> None:
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}/cmdline").exists() and b"worker" in command(pid) for pid in pids):
        assert time.monotonic() < deadline, "a worker outlives its driver"
        time.sleep(0.05)


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("text", ["{", '{"kind": "spark"}', '{"memory": "much"}', '{"cpus": 0}', '{"worker": 2}'])
def test_a_wrong_engine_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        engine_of(text)


def test_memory_is_read_as_kubernetes_writes_it() -> None:
    sizes = [Engine(memory=text).memory_bytes for text in ("", "1.5G", "512Mi", "2Ti")]
    assert sizes == [0, 1_500_000_000, 512 << 20, 2 << 40]


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"address": "127.0.0.1:1"}, "engine.address"), ({"memory": "90T"}, "90000.0 GB"), ({"cpus": 999}, "999 CPUs")],
)
def test_a_cluster_that_cannot_run_pieces_is_an_error(
    squares: Squares, cluster: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], words: str
) -> None:
    import ray

    ray.shutdown()
    monkeypatch.setenv(ENGINE, json.dumps({"kind": "ray", "address": cluster} | settings))
    with pytest.raises(PieceError, match=words):
        squares.run(1)


def test_a_driver_without_the_token_is_refused(squares: Squares, tmp_path: Path) -> None:
    with ray_cluster(token="a" * 64) as address:
        engine = json.dumps({"kind": "ray", "address": address})
        command = [sys.executable, "-c", _DRIVER, squares.store.address, str(squares.folder)]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), ENGINE: engine}
        refused = subprocess.run(command, env=variables, capture_output=True, text=True)
        assert refused.returncode == 1 and "PieceError" in refused.stderr and "RAY_AUTH_TOKEN" in refused.stderr
        variables |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "a" * 64}
        assert subprocess.run(command, env=variables, capture_output=True).returncode == 0
