"""Every metric reaches MLflow once for each step, whichever process is killed and whenever the server is down."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import sending
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.mlflow_client import Tracking, tracking_of
from gatehouse.tracking.sending import RUN_TITLE, is_left, is_unsent, open_job, send_rest, tracked_job
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


def log(metrics: Path, steps: range) -> None:
    with closing(MetricsFile(metrics)) as file:
        for step in steps:
            file.log({"loss": 1.0 / (step + 1)}, step)


def ended(store: ArtifactStore, tmp_path: Path, points: int, model: str = MODEL) -> Path:
    """The folder of a job that has ended with a model, and of which nothing was sent."""
    with tracked_job(store, "job-1", "flights", tmp_path / "metrics") as job:
        log(tmp_path / "metrics", range(points))
        job.model = model
    return job.folder


def test_the_metrics_of_a_job_are_delivered_once_when_it_has_ended_and_its_run_began_with_it(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.time() - 3600
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: began)
        job = open_job(store, "job-1", "flights", tmp_path / "metrics", {}, {})
    log(tmp_path / "metrics", range(2500))
    send_rest(store)
    assert job.folder.exists() and steps_of(store) == [] and not is_left(store), "it runs"
    job.model = MODEL
    job.close()
    assert is_left(store)
    for _ in range(2):
        send_rest(store)
    assert steps_of(store) == list(range(2500)) and not job.folder.exists() and not is_left(store)
    (run,) = runs_of(store, "flights")
    assert run.info.start_time / 1000 == pytest.approx(began, abs=1) and run.info.status == "FINISHED"


def test_a_batch_that_was_sent_and_not_recorded_arrives_once(
    store: ArtifactStore, tracking: Tracking, tmp_path: Path
) -> None:
    folder = ended(store, tmp_path, 50)
    with tracking.client() as client:
        assert sending._Sender(tracking, client, folder).send(client)
    (folder / "sent.json").unlink()
    send_rest(store)
    assert steps_of(store) == list(range(50))


def test_delivery_has_a_budget(store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[object] = []

    def send(*_: object) -> bool:
        sent.append(None)
        return True

    monkeypatch.setattr(sending._Sender, "send", send)
    folder = ended(store, tmp_path, 1)
    monkeypatch.setattr(time, "monotonic", lambda: 0.02 * len(sent))  # Each batch takes so long.
    monkeypatch.setattr(sending, "_BUDGET", 0.1)
    assert send_rest(store) == set() and len(sent) == 5 and folder.exists()


def test_a_job_that_runs_again_while_its_rest_is_delivered_waits_and_gets_a_fresh_folder(
    store: ArtifactStore, tmp_path: Path
) -> None:
    folder = ended(store, tmp_path, 5)
    with ThreadPoolExecutor() as pool, sending._exclusive(folder):
        again = pool.submit(open_job, store, "job-1", "flights", tmp_path / "metrics", {}, {})
        time.sleep(0.2)
        assert not again.done()
        sending.shutil.rmtree(folder)
    assert again.result().folder == folder and (folder / "about.json").exists()
    send_rest(store)
    assert folder.exists(), "it runs again"


JOB = """
import sys, time
from pathlib import Path
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.sending import tracked_job
store, link, live = ArtifactStore.open(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == ["live"]
with tracked_job(
    store, "job-1", "flights", link, params={"model": {"lr": 0.1}}, inputs={"split": "s"}, live=live
):
    metrics = MetricsFile(link)
    for step in range(10**9):
        metrics.log({"loss": float(step)}, step)
        if step == 3000:
            metrics.flush()
            print("ready", flush=True)
        if step >= 3000:
            time.sleep(0.001)
"""


def begin_a_job(store: ArtifactStore, tmp_path: Path, *live: str) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", JOB, store.address, str(tmp_path / "metrics"), *live]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def kill(process: "subprocess.Popen[bytes]") -> None:
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()


def test_metrics_of_a_killed_job_are_delivered_and_a_resumed_job_continues_its_run(
    store: ArtifactStore, tmp_path: Path
) -> None:
    kill(begin_a_job(store, tmp_path))
    send_rest(store)
    steps = steps_of(store)
    assert len(steps) > 3000 and steps == list(range(len(steps)))
    (killed,) = runs_of(store, "flights")
    assert killed.info.status == "KILLED" and not list((tmp_path / "store" / "scratch" / "metrics").iterdir())
    assert killed.data.params == {"model.lr": "0.1"} and killed.data.tags["gatehouse.input.split"] == "s"
    with tracked_job(store, "job-1", "flights", tmp_path / "metrics") as job:
        log(tmp_path / "metrics", range(len(steps) - 100, len(steps) + 10))
        job.model = MODEL
    send_rest(store)
    (again,) = runs_of(store, "flights")
    assert (again.info.run_id, again.info.status) == (killed.info.run_id, "FINISHED")
    assert steps_of(store) == list(range(len(steps) + 10)), "each step once"


def test_a_job_that_is_killed_while_its_metrics_are_sent_loses_and_doubles_none(
    store: ArtifactStore, tmp_path: Path
) -> None:
    """The supervisor is killed with its thread at one moment after another: each job goes on where it was."""
    for _ in range(2):
        process = begin_a_job(store, tmp_path, "live")
        before, deadline = len(steps_of(store)), time.monotonic() + 240
        while len(steps_of(store)) in (0, before):
            assert time.monotonic() < deadline, "nothing is sent while the job runs"
            time.sleep(0.05)
        kill(process)
    deadline = time.monotonic() + 300
    while is_unsent(store, "job-1") and time.monotonic() < deadline:
        send_rest(store)  # On a busy machine a minute does not send everything.
    steps = steps_of(store)
    assert len(set(steps)) > 3000, "none is lost"
    assert steps == list(range(len(steps))), "none is doubled"


def test_the_next_pod_delivers_metrics_on_a_volume(
    store: ArtifactStore,
    with_mlflow: Callable[[ArtifactStore], ArtifactStore],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GATEHOUSE_METRICS", str(tmp_path / "volume"))
    kill(begin_a_job(store, tmp_path))
    assert not (tmp_path / "store" / "scratch").exists()
    another = with_mlflow(ArtifactStore.open(tmp_path / "another"))
    send_rest(another)
    assert len(steps_of(another)) > 3000 and list((tmp_path / "volume").iterdir()) == []


def test_a_failed_job_shows_its_error_and_its_metrics(store: ArtifactStore, tmp_path: Path) -> None:
    def fail() -> None:
        with tracked_job(store, "job-1", "flights", tmp_path / "metrics"):
            log(tmp_path / "metrics", range(4))
            raise ValueError("the loss diverged")

    with pytest.raises(ValueError, match="diverged"):
        fail()
    send_rest(store)
    (run,) = runs_of(store, "flights")
    assert (run.info.status, run.data.tags["gatehouse.error"]) == ("FAILED", "ValueError")
    assert steps_of(store) == [0, 1, 2, 3] and not list((tmp_path / "store" / "scratch" / "metrics").iterdir())


def test_nan_infinity_many_metrics_and_odd_names_are_sent(store: ArtifactStore, tmp_path: Path) -> None:
    odd = {"../up": 1.0, "a//b": 2.0, "per cent %": 3.0, ".": 4.0, "": 5.0, "é" * 300: 6.0}
    wide = {f"wide_{number}": 7.0 for number in range(1500)}
    job = open_job(store, "job-1", "flights", tmp_path / "metrics", {}, {})
    with closing(MetricsFile(tmp_path / "metrics")) as file:
        file.log({"loss": math.nan, "rate": math.inf, **odd, **wide}, 7)
    job.close()
    send_rest(store)
    metrics = dict(runs_of(store, "flights")[0].data.metrics)
    assert math.isnan(metrics.pop("loss")) and metrics.pop("rate") > 1e308
    assert sorted(metrics.values()) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, *[7.0] * 1500]


def test_a_job_that_ends_with_the_same_model_again_has_a_run_of_its_own(store: ArtifactStore, tmp_path: Path) -> None:
    for number in range(2):
        title = RUN_TITLE.set(f"trial {number}")
        ended(store, tmp_path, 3)
        RUN_TITLE.reset(title)
        send_rest(store)
        time.sleep(0.002)
    names = [(run.info.run_name, run.info.status) for run in runs_of(store, "flights")]
    assert names == [("trial 0", "FINISHED"), ("trial 1", "FINISHED")] and steps_of(store) == [0, 0, 1, 1, 2, 2]


def test_metrics_and_samples_are_sent_while_a_job_runs(
    store: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "SAMPLING", 0.2)
    with tracked_job(store, "job-1", "flights", tmp_path / "metrics", live=True, sampled=True) as job:
        log(tmp_path / "metrics", range(5000))
        deadline = time.monotonic() + 240
        while len(steps_of(store)) < 5000 or not steps_of(store, "system/cpu_utilization_percentage"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        (run,) = runs_of(store, "flights")
        assert run.info.status == "RUNNING" and run.data.metrics["system/job_memory_usage_megabytes"] > 10
        samples, lasted = steps_of(store, "system/cpu_utilization_percentage"), time.time() - run.info.start_time / 1000
        assert 0 <= min(samples) <= max(samples) <= lasted + 1, "their steps are seconds of the run"
        job.model = MODEL
    send_rest(store)
    assert steps_of(store) == list(range(5000)) and not job.folder.exists()
