"""Training runs and experiments in MLflow, on a real SQLite tracking store."""

import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gatehouse.store.canonical import canonical_json
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import sending
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.mlflow_client import tracking_of
from gatehouse.tracking.projection import show_training, track_experiment, track_training
from gatehouse.tracking.provenance import lineage_of
from gatehouse.tracking.sending import open_job, send_rest
from gatehouse.training.validation import log_epochs
from tests.tracking.shown import client_of, runs_of, steps_of


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, with_mlflow: Callable[[ArtifactStore], ArtifactStore]
) -> ArtifactStore:
    return with_mlflow(ArtifactStore.open(tmp_path_factory.mktemp("store")))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv(RUN_ID, request.node.name)


def model_of(store: ArtifactStore, name: str, epochs: int = 3, **configuration: Any) -> str:
    training_set = store.publish("training-sets", "delay", {"rows.csv": "x\n1\n"})
    history = [{"epoch": epoch, "log_loss": 0.6 - epoch / 10_000, "roc_auc": 0.7} for epoch in range(epochs)]
    files = {"history.json": canonical_json(history), "model.json": "{}"}
    inputs = {"training_set": training_set}
    details = {"best_epoch": 1}
    return str(store.publish("models", name, files, derived_from=inputs, configuration=configuration, details=details))


def test_a_run_has_parameters_history_lineage_environment_duration_cost_and_inputs(
    shared: ArtifactStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setenv("GATEHOUSE_PRICES", '{"per_hour": {"default": 2.0}}')
    model = model_of(shared, "one", learning_rate=0.002, hidden=[256, 128])
    shared.append(f"measurements/{model}", {"stage": "latency", "seconds": 1.0})
    shared.append(f"measurements/{model}", {"stage": "train", "seconds": 1800.0})
    track_training(shared, model)
    above, run = runs_of(shared, "one")
    assert run.data.params == {"learning_rate": "0.002", "hidden": "[256, 128]"}
    best = {"best_epoch": 1, "best_log_loss": 0.5999, "best_roc_auc": 0.7}
    spent = {"duration_seconds": 1800.0, "cost": 1.0}
    assert run.data.metrics == pytest.approx({"log_loss": 0.5998, "roc_auc": 0.7} | best | spent)
    assert run.info.end_time - run.info.start_time == pytest.approx(1_800_000, abs=20_000)
    (training_set,) = lineage_of(shared, model)
    assert run.data.tags["gatehouse.lineage.training-sets.delay"] == training_set
    assert run.data.tags["gatehouse.hardware"] and run.data.tags["gatehouse.version.pydantic"]
    assert run.data.tags["mlflow.parentRunId"] == above.info.run_id and above.info.run_name == request.node.name
    assert {run.info.status, above.info.status} == {"FINISHED"}
    (data,) = run.inputs.dataset_inputs
    assert data.dataset.name == "delay" and training_set in data.dataset.source
    assert [(tag.key, tag.value) for tag in data.tags] == [("mlflow.data.context", "training_set")]


def test_a_calibrated_model_has_the_run_of_its_training(shared: ArtifactStore) -> None:
    model = model_of(shared, "calibrated", learning_rate=0.002)
    files: dict[str, Any] = {entry.path: entry for entry in shared.manifest(model).files} | {"calibration.json": "{}"}
    calibrated = shared.publish("models", "calibrated", files, derived_from={"model": model})
    track_training(shared, model)
    tracking = tracking_of(shared)
    assert tracking is not None
    with client_of(shared) as client:
        assert show_training(tracking, client, calibrated).data.tags["gatehouse.reference"] == model
    assert len([run for run in runs_of(shared, "calibrated") if run.data.params]) == 1


def test_a_failed_trial_that_was_tracked_while_it_ran_keeps_its_run(shared: ArtifactStore, tmp_path: Path) -> None:
    job = open_job(shared, "job-7", "live", tmp_path / "link", {"dropout": 9}, {})
    with closing(MetricsFile(job.metrics)) as metrics:
        metrics.log({"step_loss": 3.0}, 0)
    job.close("diverged")
    trials = [{"number": 0, "parameters": {"dropout": 9}, "state": "failed", "reason": "diverged"}]
    files = {"trials.json": canonical_json(trials)}
    experiment = str(shared.publish("experiments", "live", files, details={"best_trial": 0}))
    shared.append(f"measurements/{experiment}", {"stage": "tune", "jobs": {"0": "job-7"}})
    track_experiment(shared, experiment)
    _, trial, tune = runs_of(shared, "live")
    assert (trial.info.run_name, trial.info.status, trial.data.metrics) == ("trial 0", "FAILED", {"step_loss": 3.0})
    assert trial.data.tags["mlflow.parentRunId"] == tune.info.run_id


def train(store: ArtifactStore, tmp_path: Path, job: str, model: str) -> Path:
    """A job that ended with a model, of which nothing has reached MLflow yet."""
    opened = open_job(store, job, model.split("/")[1], tmp_path / "link", {}, {})
    with closing(MetricsFile(opened.metrics)) as metrics:
        metrics.log({"step_loss": 3.0}, 0)
        log_epochs(metrics, store.read_json(model, "history.json"))
    store.append(f"measurements/{model}", {"stage": "train", "seconds": 1.0, "job": job})
    opened.model = model
    opened.close()
    return opened.folder


def test_another_job_that_makes_the_same_bits_has_a_complete_run_of_its_own(
    shared: ArtifactStore, tmp_path: Path
) -> None:
    model = model_of(shared, "again", seed=7)
    for job in ("job-1", "job-2"):
        train(shared, tmp_path, job, model)
        track_training(shared, model)
    _, *runs = runs_of(shared, "again")
    assert {run.data.tags["gatehouse.job"] for run in runs} == {"job-1", "job-2"}
    for run in runs:
        assert (run.info.status, run.data.params) == ("FINISHED", {"seed": "7"})
        assert run.data.metrics.keys() >= {"step_loss", "log_loss", "duration_seconds"}


def test_epochs_that_a_job_has_logged_are_in_its_run_once(shared: ArtifactStore, tmp_path: Path) -> None:
    model = model_of(shared, "once", seed=7)
    job = open_job(shared, "job-once", "once", tmp_path / "link", {}, {})
    with closing(MetricsFile(job.metrics)) as metrics:
        for epoch in (0, 1, 0, 1):  # A job that resumed logs the epochs of its checkpoint again; the last one is lost.
            metrics.log({"log_loss": 0.6 - epoch / 10_000}, epoch)
    shared.append(f"measurements/{model}", {"stage": "train", "seconds": 1.0, "job": "job-once"})
    job.model = model
    job.close()
    track_training(shared, model)
    run = runs_of(shared, "once")[1]
    assert steps_of(shared, run, "log_loss") == steps_of(shared, run, "roc_auc") == [0, 1, 2]


def test_a_model_that_is_shown_while_another_process_sends_its_metrics_has_one_run(
    shared: ArtifactStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(shared, "beside", seed=7)
    monkeypatch.setattr(sending, "_BUDGET", 0.2)
    with sending._exclusive(train(shared, tmp_path, "job-beside", model)):
        track_training(shared, model)
    send_rest(shared)
    _, run = runs_of(shared, "beside")
    assert run.info.status == "FINISHED" and run.data.metrics.keys() >= {"step_loss", "log_loss"}


def test_tracking_again_adds_nothing_and_imports_no_mlflow(shared: ArtifactStore) -> None:
    model = model_of(shared, "long", epochs=1200)  # More than one call of MLflow takes.
    track_training(shared, model)
    program = (
        "import os, sys; from gatehouse.store.store import ArtifactStore\n"
        "from gatehouse.tracking.projection import track_training\n"
        "os.environ['GATEHOUSE_RUN_ID'] = 'another run'\n"
        "track_training(ArtifactStore.open(sys.argv[1]), sys.argv[2]); print('mlflow' in sys.modules)"
    )
    command = [sys.executable, "-c", program, shared.address, model]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"
    _, run = runs_of(shared, "long")
    assert steps_of(shared, run, "log_loss") == list(range(1200))


def test_an_experiment_shows_every_trial_below_it_also_failed_ones(shared: ArtifactStore) -> None:
    trial = {"parameters": {"dropout": 0.1}, "values": {"log_loss": 0.5}}
    trials = [
        {"number": 0, "model": model_of(shared, "search-trial", dropout=0.1), **trial},
        {"number": 1, "parameters": {"dropout": 9}, "state": "failed", "model": "", "reason": "LauncherError"},
        {"number": 2, "parameters": {"dropout": 8}, "state": "early_stopped", "reason": "pruned at step 1 of 4"},
    ]
    files = {"trials.json": canonical_json(trials)}
    experiment = str(shared.publish("experiments", "search", files, details={"best_trial": 0, "value": 0.5}))
    shared.append(f"measurements/{experiment}", {"stage": "tune", "began": 1_700_000_000.0, "seconds": 20.0})
    for _ in range(2):
        track_experiment(shared, experiment)
    _, good, bad, early, tune = runs_of(shared, "search")
    assert [run.info.run_name for run in (good, bad, early, tune)] == ["trial 0", "trial 1", "trial 2", "tune"]
    assert {run.data.tags["mlflow.parentRunId"] for run in (good, bad, early)} == {tune.info.run_id}
    assert (early.info.status, early.data.tags["gatehouse.error"]) == ("KILLED", "pruned at step 1 of 4")
    assert (bad.info.status, bad.data.tags["gatehouse.error"]) == ("FAILED", "LauncherError")
    assert (good.info.status, good.data.params) == ("FINISHED", {"dropout": "0.1"})
    # The bare name has the value of the last epoch, which is not the one that the search chose by.
    assert good.data.metrics["objective.log_loss"] == 0.5 != good.data.metrics["log_loss"]
    assert "the values that the search chose by" in good.data.tags["mlflow.note.content"]
    assert tune.data.metrics == {"best_value": 0.5, "duration_seconds": 20.0}
    assert (tune.info.start_time, tune.info.end_time) == (1_700_000_000_000, 1_700_000_020_000)


def test_a_failure_of_mlflow_is_only_a_warning_and_the_next_run_tries_again(
    shared: ArtifactStore, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    model = model_of(shared, "unreachable")
    with monkeypatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/nowhere/mlflow.db")
        track_training(shared, model)
    (warned,) = [event for _, event in events(shared, request.node.name) if event.event == "warned"]
    assert warned.stage == "train:tracking" and "the next run tries again" in warned.body["message"]
    track_training(shared, model)
    assert len(runs_of(shared, "unreachable")) == 2
