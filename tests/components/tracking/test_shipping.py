"""Shipping: every spooled point reaches MLflow once, whoever is killed and whenever the server is gone."""

import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mlflow import MlflowClient

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.tracking import shipping
from gatehouse.components.tracking.shipping import close_spool, deliver, open_spool, ship, shipped_live
from gatehouse.components.tracking.spool import SpoolWriter


def _client(store: ArtifactStore) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{store.address}/mlflow/mlflow.db")


def _steps(store: ArtifactStore, name: str = "loss") -> list[int]:
    """Steps of a metric as MLflow has them, of the only run of the experiment."""
    client = _client(store)
    experiment = client.get_experiment_by_name("flights")
    if experiment is None:
        return []
    runs = client.search_runs([experiment.experiment_id])
    return sorted(metric.step for run in runs for metric in client.get_metric_history(run.info.run_id, name))


def _spool(store: ArtifactStore, tmp_path: Path, points: int) -> Path:
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics")
    writer = SpoolWriter(tmp_path / "metrics")
    for step in range(points):
        writer.log({"loss": 1.0 / (step + 1)}, step)
    return folder


def test_a_finished_spool_is_delivered_once_and_removed(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 2500)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    deliver(store)
    deliver(store)
    assert _steps(store) == list(range(2500)) and not folder.exists()


def test_a_batch_that_is_sent_twice_arrives_once(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 50)
    tracking = shipping.tracking_of(store)
    assert tracking is not None and ship(tracking, folder)
    (folder / "shipped.json").unlink()  # Killed between sending the batch and noting it.
    assert ship(tracking, folder)
    assert _steps(store) == list(range(50))


def test_an_unfinished_spool_waits_for_its_job(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 5)
    deliver(store)
    assert folder.exists() and _steps(store) == []


def test_a_job_that_runs_again_while_its_spool_is_delivered_gets_a_fresh_one(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = _spool(store, tmp_path, 5)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    with ThreadPoolExecutor() as pool, shipping._alone(folder):
        again = pool.submit(_spool, store, tmp_path, 3)
        time.sleep(0.2)
        assert not again.done()
        shutil.rmtree(folder)
    assert again.result() == folder and (folder / "about.json").exists()
    deliver(store)
    assert folder.exists(), "it is open again"


def test_points_are_shipped_while_they_are_made(store: ArtifactStore, tmp_path: Path) -> None:
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics")
    writer = SpoolWriter(folder)
    with shipped_live(store, folder):
        writer.log({"loss": 1.0}, 1)
        deadline = time.monotonic() + 60
        while _steps(store) != [1]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_killed_shipper_loses_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 5000)
    command = [sys.executable, "-m", "gatehouse.components.tracking.shipping", store.address, str(folder)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not _steps(store):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    deliver(store)
    assert _steps(store) == list(range(5000))


def test_a_server_that_is_down_costs_a_warning_and_the_spool_stays(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _spool(store, tmp_path, 5)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
        close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
        deliver(store)
    assert "MLflow could not be written" in caplog.text and folder.exists()
    deliver(store)
    assert _steps(store) == list(range(5))
