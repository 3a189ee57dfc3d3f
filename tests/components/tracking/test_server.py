"""A real MLflow server that is slow, away, or loses answers: the loop never waits, and every point arrives once."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gatehouse.commands.runs import app
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking.mlflow_client import quiet_client
from gatehouse.components.tracking.shipping import close_spool, deliver, open_spool, shipped_live
from gatehouse.components.tracking.spool import SpoolWriter
from tests.components.tracking.servers import Proxy, mlflow_server

MODEL = "models/flights/sha256-" + "0" * 64


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of an MLflow server."""
    with mlflow_server(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture
def proxy(server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy before it, which is where runs are tracked."""
    made = Proxy(server)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", made.url)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR", "1")
    yield made
    made.close()


def _steps(proxy: Proxy, experiment: str, name: str = "loss") -> list[int]:
    client = quiet_client(proxy.url)
    found = client.get_experiment_by_name(experiment)
    runs = client.search_runs([found.experiment_id]) if found else []
    return sorted(point.step for run in runs for point in client.get_metric_history(run.info.run_id, name))


def test_the_loop_does_not_wait_for_a_slow_server_that_loses_answers(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    folder = open_spool(store, "job-1", "slow", tmp_path / "link", params={"lr": 0.01})
    writer, longest = SpoolWriter(folder), 0.0
    with shipped_live(store, folder):
        for step in range(3000):
            began = time.perf_counter()
            writer.log({"loss": 1.0 / (step + 1)}, step)
            longest = max(longest, time.perf_counter() - began)
            if step == 1000:
                deadline = time.monotonic() + 120
                while not any("log-batch" in path for path in proxy.requests):
                    assert time.monotonic() < deadline, "nothing was shipped while the job ran"
                    time.sleep(0.05)
                proxy.delay, proxy.lost = 10.0, 2
            time.sleep(0.0005)
        proxy.delay = 0.1
    assert longest < 5
    close_spool(store, folder, MODEL)
    deadline = time.monotonic() + 120
    while folder.exists() and time.monotonic() < deadline:
        deliver(store)  # Which leaves to the next time what a lost answer keeps it from.
    assert _steps(proxy, "slow") == list(range(3000)) and not folder.exists()


def test_what_was_logged_while_the_server_was_away_is_there_later_and_is_found(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    proxy.down = True
    folder = open_spool(store, "job-2", "away", tmp_path / "link", params={"lr": 0.001})
    writer = SpoolWriter(folder)
    for step in range(1500):
        writer.log({"loss": 1.0}, step)
    close_spool(store, folder, MODEL)
    deliver(store)
    assert folder.exists()
    proxy.down = False
    deliver(store)
    assert _steps(proxy, "away") == list(range(1500))
    found = CliRunner().invoke(app, ["search", "lr < 0.005 and loss = 1", "--uri", proxy.url, "--json"])
    assert [run["experiment"] for run in json.loads(found.stdout)] == ["away"]


def test_a_job_that_goes_on_from_a_checkpoint_shows_each_step_once(
    store: ArtifactStore, tmp_path: Path, proxy: Proxy
) -> None:
    """Killed after step 59, then after 79, each time resumed from step 40: also where its spool was delivered."""
    for begin, end in ((0, 60), (40, 80), (40, 100)):
        folder = open_spool(store, "job-3", "resumed", tmp_path / "link")
        writer = SpoolWriter(folder)
        for step in range(begin, end):
            writer.log({"loss": 1.0 / (step + 1), f"since {begin}": 1.0}, step)
        if end == 60:
            close_spool(store, folder, "", "killed")
            deliver(store)
    close_spool(store, folder, MODEL)
    deliver(store)
    assert _steps(proxy, "resumed") == list(range(100))
    assert _steps(proxy, "resumed", "since 40") == list(range(40, 100)), "of each metric by itself"
