"""Every spooled point reaches MLflow once, whichever process is killed and whenever the server is down."""

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import shipping
from gatehouse.tracking.machine import Machine
from gatehouse.tracking.mlflow_client import Tracking, tracking_of
from gatehouse.tracking.shipping import RUN_TITLE, close_spool, deliver, open_spool, ship, shipped_live
from gatehouse.tracking.spool import SpoolWriter
from tests.tracking import shown
from tests.tracking.shown import runs_of

MODEL = "models/flights/sha256-" + "0" * 64


@pytest.fixture
def store(tmp_path: Path, with_mlflow: Callable[[ArtifactStore], ArtifactStore]) -> ArtifactStore:
    return with_mlflow(ArtifactStore.open(tmp_path / "store"))


@pytest.fixture
def tracking(store: ArtifactStore) -> Tracking:
    tracking = tracking_of(store)
    assert tracking is not None
    return tracking


def steps_of(store: ArtifactStore, name: str = "loss") -> list[int]:
    return sorted(step for run in runs_of(store, "flights") for step in shown.steps_of(store, run, name))


def spooled(store: ArtifactStore, tmp_path: Path, points: int) -> Path:
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics")
    writer = SpoolWriter(tmp_path / "metrics")
    for step in range(points):
        writer.log({"loss": 1.0 / (step + 1)}, step)
    return folder


def test_a_finished_spool_is_delivered_once_and_removed_and_its_run_began_with_the_job(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time() - 3600
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: began)
        folder = spooled(store, tmp_path, 2500)
    deliver(store)
    assert folder.exists() and steps_of(store) == [], "an unfinished spool waits for its job"
    close_spool(store, folder, MODEL)
    for _ in range(2):
        deliver(store)
    assert steps_of(store) == list(range(2500)) and not folder.exists()
    assert runs_of(store, "flights")[0].info.start_time / 1000 == pytest.approx(began, abs=1)


def test_a_batch_that_is_sent_twice_arrives_once(store: ArtifactStore, tracking: Tracking, tmp_path: Path) -> None:
    folder = spooled(store, tmp_path, 50)
    assert ship(tracking, folder)
    (folder / "shipped.json").unlink()  # Killed between sending the batch and recording it.
    assert ship(tracking, folder)
    assert steps_of(store) == list(range(50))


def test_a_spool_that_another_process_removes_meanwhile_is_no_error(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folder, in_use = spooled(store, tmp_path, 1), shipping.in_use

    def late(spool: Path) -> bool:
        shutil.rmtree(spool)
        return in_use(spool)

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


def test_delivery_has_a_budget(store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []
    run = {"id": "run", "began": 0.0, "reached": {}}
    monkeypatch.setattr(shipping, "BATCH", 1)
    monkeypatch.setattr(shipping, "_run", lambda *_: run)
    monkeypatch.setattr(shipping, "log_points", lambda *points: sent.append(points))
    folder = spooled(store, tmp_path, 100)
    close_spool(store, folder, MODEL)
    monkeypatch.setattr(time, "monotonic", lambda: 0.02 * len(sent))  # Each batch takes so long.
    assert deliver(store, seconds=0.1) == set() and len(sent) == 5 and folder.exists()


def test_a_job_that_runs_again_while_its_spool_is_delivered_waits_and_gets_a_fresh_one(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = spooled(store, tmp_path, 5)
    close_spool(store, folder, MODEL)
    with ThreadPoolExecutor() as pool, shipping._exclusive(folder):
        again = pool.submit(spooled, store, tmp_path, 3)
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


def kill_a_job(store: ArtifactStore, tmp_path: Path) -> None:
    command = [sys.executable, "-c", JOB, store.address, str(tmp_path / "metrics")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def test_the_spool_of_a_killed_job_is_delivered_and_a_resumed_job_continues_its_run(
    store: ArtifactStore, tracking: Tracking, tmp_path: Path
) -> None:
    kill_a_job(store, tmp_path)
    deliver(store)
    steps = steps_of(store)
    assert len(steps) > 3000 and steps == list(range(len(steps)))
    (killed,) = runs_of(store, "flights")
    assert killed.info.status == "KILLED" and not list((tmp_path / "store" / "scratch" / "metrics").iterdir())
    assert killed.data.params == {"model.lr": "0.1"} and killed.data.tags["gatehouse.input.split"] == "s"
    folder = spooled(store, tmp_path, len(steps) + 10)
    while ship(tracking, folder):
        pass
    (again,) = runs_of(store, "flights")
    assert (again.info.run_id, again.info.status) == (killed.info.run_id, "RUNNING")
    assert steps_of(store) == list(range(len(steps) + 10)), "each step once"
    folder = open_spool(store, "job-1", "flights", tmp_path / "metrics", params={"model": {"lr": 0.2}})
    SpoolWriter(folder).log({"loss": 1.0}, len(steps) + 10)
    with pytest.raises(Exception, match="Changing param values is not allowed"):
        ship(tracking, folder)


def test_the_next_pod_delivers_a_spool_on_a_volume(
    store: ArtifactStore,
    with_mlflow: Callable[[ArtifactStore], ArtifactStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEHOUSE_SPOOL", str(tmp_path / "volume"))
    kill_a_job(store, tmp_path)
    assert not (tmp_path / "store" / "scratch").exists()
    another = with_mlflow(ArtifactStore.open(tmp_path / "another"))
    deliver(another)
    assert len(steps_of(another)) > 3000 and list((tmp_path / "volume").iterdir()) == []


def test_a_failed_job_shows_its_error_its_metrics_and_the_number_of_dropped_ones(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = spooled(store, tmp_path, 4)
    SpoolWriter(folder).drop(3)
    with pytest.raises(ValueError, match="diverged"), shipped_live(store, folder, live=False):
        raise ValueError("the loss diverged")
    deliver(store)
    (run,) = runs_of(store, "flights")
    assert (run.info.status, run.data.tags["gatehouse.error"]) == ("FAILED", "ValueError")
    assert run.data.tags["gatehouse.metrics_dropped"] == "3"
    assert steps_of(store) == [0, 1, 2, 3] and not folder.exists()


def test_nan_infinity_and_odd_names_are_shipped(store: ArtifactStore, tmp_path: Path) -> None:
    folder = spooled(store, tmp_path, 1)
    odd = {"../up": 1.0, "a//b": 2.0, "per cent %": 3.0, ".": 4.0, "": 5.0, "é" * 300: 6.0}
    SpoolWriter(folder).log({"loss": math.nan, "rate": math.inf, **odd}, 7)
    close_spool(store, folder, MODEL)
    deliver(store)
    metrics = dict(runs_of(store, "flights")[0].data.metrics)
    assert math.isnan(metrics.pop("loss")) and metrics.pop("rate") > 1e308
    assert sorted(metrics.values()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def test_a_job_that_ends_with_the_same_model_again_has_a_run_of_its_own(store: ArtifactStore, tmp_path: Path) -> None:
    for number in range(2):
        title = RUN_TITLE.set(f"trial {number}")
        close_spool(store, spooled(store, tmp_path, 3), MODEL)
        RUN_TITLE.reset(title)
        deliver(store)
        time.sleep(0.002)
    names = [(run.info.run_name, run.info.status) for run in runs_of(store, "flights")]
    assert names == [("trial 0", "FINISHED"), ("trial 1", "FINISHED")] and steps_of(store) == [0, 0, 1, 1, 2, 2]


def test_steps_of_machine_samples_are_seconds_since_the_run_began(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = spooled(store, tmp_path, 1)
    monkeypatch.setattr(time, "time", lambda clock=time.time: clock() + 7)
    SpoolWriter(folder / "machine").log(Machine(os.getpid()).sample(), 0)
    close_spool(store, folder, MODEL)
    deliver(store)
    metrics = runs_of(store, "flights")[0].data.metrics
    assert metrics["system/job_memory_usage_megabytes"] > 10
    assert 0 < metrics["system/system_memory_usage_percentage"] < 100
    assert min(steps_of(store, "system/job_memory_usage_megabytes")) >= 7


def test_points_are_shipped_while_they_are_logged_and_a_killed_shipper_loses_none(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = spooled(store, tmp_path, 5000)
    with shipped_live(store, folder):
        deadline = time.monotonic() + 240
        while not steps_of(store):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for process in psutil.Process().children():
            with contextlib.suppress(psutil.ZombieProcess):
                if shipping.__name__ in process.cmdline():
                    process.kill()
    close_spool(store, folder, MODEL)
    deliver(store)
    assert steps_of(store) == list(range(5000))
