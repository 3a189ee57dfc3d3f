"""Shipping: every spooled point reaches MLflow once, whoever is killed and whenever the server is gone."""

import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import shipping
from gatehouse.tracking.machine import Machine
from gatehouse.tracking.shipping import RUN_TITLE, close_spool, deliver, open_spool, ship, shipped_live
from gatehouse.tracking.spool import SpoolWriter

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run


@pytest.fixture
def store(tmp_path: Path, with_mlflow: Callable[[ArtifactStore], ArtifactStore]) -> ArtifactStore:
    """An artifact store with an empty MLflow database."""
    return with_mlflow(ArtifactStore.open(tmp_path / "store"))


def _client(store: ArtifactStore) -> "MlflowClient":
    from mlflow import MlflowClient

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


def test_a_run_that_is_told_late_began_with_its_job(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time() - 3600
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: began)
        folder = _spool(store, tmp_path, 5)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    deliver(store)
    client = _client(store)
    experiment = client.get_experiment_by_name("flights")
    assert experiment is not None
    [run] = client.search_runs([experiment.experiment_id])
    assert run.info.start_time / 1000 == pytest.approx(began, abs=1)


def test_a_batch_that_is_sent_twice_arrives_once(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 50)
    tracking = shipping.tracking_of(store)
    assert tracking is not None and ship(tracking, folder)
    (folder / "shipped.json").unlink()  # Killed between sending the batch and noting it.
    assert ship(tracking, folder)
    assert _steps(store) == list(range(50))


def test_a_spool_that_another_process_removes_meanwhile_is_no_error(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _spool(store, tmp_path, 1)
    looked_at = shipping.in_use

    def late(spool: Path) -> bool:
        shutil.rmtree(spool)
        return looked_at(spool)

    monkeypatch.setattr(shipping, "in_use", late)  # Another process comes between.
    deliver(store)
    assert not folder.exists() and caplog.text == ""


def test_a_spool_volume_that_cannot_be_used_is_a_warning(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GATEHOUSE_SPOOL", str(tmp_path / "file"))
    deliver(store)
    assert "FileExistsError" in caplog.text


def test_delivery_has_a_budget_and_lets_the_job_begin_again_in_between(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shipping, "BATCH", 1)  # Many deliveries of few points.
    run = {"id": "run", "began": 0.0, "reached": {}}
    monkeypatch.setattr(shipping, "_run", lambda *_: run)  # Only how long a server takes matters.
    sent: list[float] = []
    third = threading.Event()

    def send(*_: object) -> None:
        sent.append(time.monotonic())
        if len(sent) % 10 == 3:
            third.set()

    monkeypatch.setattr(shipping, "log_points", send)
    folder = _spool(store, tmp_path, 100)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 0.02 * len(sent))  # Each batch takes so long.
        assert deliver(store, seconds=0.1) == set()
    assert len(sent) == 5 and folder.exists()
    third.clear()
    with ThreadPoolExecutor() as pool:
        delivered = pool.submit(deliver, store)
        assert third.wait(60)
        _spool(store, tmp_path, 0)
        assert delivered.result() == set() and folder.exists()
    assert len(sent) < 100


def test_an_unfinished_spool_waits_for_its_job(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 5)
    deliver(store)
    assert folder.exists() and _steps(store) == []


def test_a_job_that_runs_again_while_its_spool_is_delivered_gets_a_fresh_one(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = _spool(store, tmp_path, 5)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    with ThreadPoolExecutor() as pool, shipping._exclusive(folder):
        again = pool.submit(_spool, store, tmp_path, 3)
        time.sleep(0.2)
        assert not again.done()
        shutil.rmtree(folder)
    assert again.result() == folder and (folder / "about.json").exists()
    deliver(store)
    assert folder.exists(), "it is open again"


JOB = """
import sys, time
from pathlib import Path
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.shipping import open_spool
from gatehouse.tracking.spool import SpoolWriter
store = ArtifactStore.open(sys.argv[1])
folder = open_spool(store, "job-1", "flights", Path(sys.argv[2]), params={"model": {"lr": 0.1}}, inputs={"split": "s"})
writer = SpoolWriter(folder)
for step in range(10**9):
    writer.log({"loss": float(step)}, step)
    if step == 3000:
        print("ready", flush=True)
    if step >= 3000:
        time.sleep(0.001)
"""


def _killed_job(store: ArtifactStore, tmp_path: Path) -> None:
    command = [sys.executable, "-c", JOB, store.address, str(tmp_path / "metrics")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def _only_run(store: ArtifactStore) -> "Run":
    client = _client(store)
    experiment = client.get_experiment_by_name("flights")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    return run


def test_the_next_process_delivers_the_spool_of_a_killed_one_and_says_that_it_was(
    store: ArtifactStore, tmp_path: Path
) -> None:
    _killed_job(store, tmp_path)
    deliver(store)
    steps = _steps(store)
    assert len(steps) > 3000 and steps == list(range(len(steps)))
    run = _only_run(store)
    assert run.info.status == "KILLED" and not list((tmp_path / "store" / "scratch" / "metrics").iterdir())
    assert run.data.params == {"model.lr": "0.1"} and run.data.tags["gatehouse.input.split"] == "s"
    assert run.data.tags["gatehouse.hardware"]


def test_the_next_pod_delivers_a_spool_that_is_on_a_volume(
    store: ArtifactStore,
    with_mlflow: Callable[[ArtifactStore], ArtifactStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEHOUSE_SPOOL", str(tmp_path / "volume"))
    _killed_job(store, tmp_path)
    assert not (tmp_path / "store" / "scratch").exists()
    another = with_mlflow(ArtifactStore.open(tmp_path / "another"))
    deliver(another)
    assert len(_steps(another)) > 3000 and list((tmp_path / "volume").iterdir()) == []


def test_a_job_that_goes_on_takes_up_the_run_that_was_killed(store: ArtifactStore, tmp_path: Path) -> None:
    _killed_job(store, tmp_path)
    deliver(store)
    killed = _only_run(store)
    begun = _steps(store)
    folder = _spool(store, tmp_path, len(begun) + 10)
    tracking = shipping.tracking_of(store)
    assert tracking is not None
    while ship(tracking, folder):
        pass
    again = _only_run(store)
    assert (again.info.run_id, again.info.status) == (killed.info.run_id, "RUNNING")
    assert _steps(store) == list(range(len(begun) + 10)), "each step once"


def test_a_job_that_fails_says_why_and_keeps_its_metrics(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 4)
    SpoolWriter(folder).drop(3)
    with pytest.raises(ValueError, match="diverged"), shipped_live(store, folder, live=False):
        raise ValueError("the loss diverged")
    deliver(store)
    run = _only_run(store)
    assert (run.info.status, run.data.tags["gatehouse.error"]) == ("FAILED", "ValueError")
    assert _steps(store) == [0, 1, 2, 3] and not folder.exists()
    assert run.data.tags["gatehouse.metrics_dropped"] == "3"


def test_nan_infinity_and_odd_names_hold_nothing_up(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 1)
    writer = SpoolWriter(folder)
    odd = {"../up": 1.0, "a//b": 2.0, "per cent %": 3.0, ".": 4.0, "": 5.0, "é" * 300: 6.0}
    writer.log({"loss": math.nan, "rate": math.inf, **odd}, 7)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    deliver(store)
    run = _only_run(store)
    assert math.isnan(run.data.metrics["loss"]) and run.data.metrics["rate"] > 1e308
    assert sorted(value for name, value in run.data.metrics.items() if name not in ("loss", "rate")) == [
        *map(float, range(1, 7))
    ]


def test_parameters_of_a_run_do_not_change(store: ArtifactStore, tmp_path: Path) -> None:
    _killed_job(store, tmp_path)
    deliver(store)
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics", params={"model": {"lr": 0.2}})
    tracking = shipping.tracking_of(store)
    SpoolWriter(folder).log({"loss": 1.0}, 0)
    assert tracking is not None
    with pytest.raises(Exception, match="Changing param values is not allowed"):
        ship(tracking, folder)
    assert _only_run(store).data.params == {"model.lr": "0.1"}


def test_a_job_that_ends_with_the_same_model_again_has_a_run_of_its_own_and_both_end(
    store: ArtifactStore, tmp_path: Path
) -> None:
    for number in range(2):
        title = RUN_TITLE.set(f"trial {number}")
        close_spool(store, _spool(store, tmp_path, 3), "models/flights/sha256-" + "0" * 64)
        RUN_TITLE.reset(title)
        deliver(store)
        time.sleep(0.002)
    client = _client(store)
    experiment = client.get_experiment_by_name("flights")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    assert [(run.info.run_name, run.info.status) for run in runs] == [("trial 1", "FINISHED"), ("trial 0", "FINISHED")]
    assert [len(client.get_metric_history(run.info.run_id, "loss")) for run in runs] == [3, 3]


def test_the_machine_is_sampled_beside_the_job(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _spool(store, tmp_path, 1)
    monkeypatch.setattr(time, "time", lambda clock=time.time: clock() + 7)  # Of a process that the job began later.
    SpoolWriter(folder / "machine").log(Machine(os.getpid()).sample(), 0)
    close_spool(store, folder, "models/flights/sha256-" + "0" * 64)
    deliver(store)
    metrics = _only_run(store).data.metrics
    assert metrics["system/job_memory_usage_megabytes"] > 10
    assert 0 < metrics["system/system_memory_usage_percentage"] < 100
    assert min(_steps(store, "system/job_memory_usage_megabytes")) >= 7, "seconds since the run began"


def test_points_are_shipped_while_they_are_made(store: ArtifactStore, tmp_path: Path) -> None:
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics")
    writer = SpoolWriter(folder)
    with shipped_live(store, folder):
        writer.log({"loss": 1.0}, 1)
        deadline = time.monotonic() + 240
        while _steps(store) != [1]:
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_a_killed_shipper_loses_nothing(store: ArtifactStore, tmp_path: Path) -> None:
    folder = _spool(store, tmp_path, 5000)
    command = [sys.executable, "-m", "gatehouse.tracking.shipping", store.address, str(folder)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 240
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
