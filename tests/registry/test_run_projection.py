"""What a run left to be shown when it has ended, on a real SQLite tracking store."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from click.testing import Result
from typer.testing import CliRunner

from gatehouse.cli import run as run_module
from gatehouse.kfp.local_run import LocalRun
from gatehouse.operations.ending_stage import outcome_of, record_end
from gatehouse.registry import projection
from gatehouse.store.records import create_record
from gatehouse.store.run import RUN_ID, Attempt, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking import mlflow_client
from gatehouse.tracking import projection as shown_projection
from gatehouse.tracking.mlflow_client import pipeline_run, tracking_of
from gatehouse.tracking.place import LATER
from gatehouse.tracking.projection import (
    backlog_reason,
    close_run,
    leave_ledger,
    left_by,
    runs_left,
    show_apart,
    track_training,
)
from gatehouse.tracking.provenance import PRICES
from tests.small_example import EXAMPLE
from tests.tracking.shown import runs_of


@pytest.fixture(autouse=True)
def of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv(RUN_ID, "run-1")


@pytest.fixture
def tracked(store: ArtifactStore, with_mlflow: Callable[[ArtifactStore], ArtifactStore]) -> None:
    """The store has an empty MLflow database."""
    with_mlflow(store)


def _shown(store: ArtifactStore, experiment: str) -> dict[str, Any]:
    return {str(run.info.run_name): run for run in runs_of(store, experiment)}


def _trained(store: ArtifactStore) -> str:
    """A model, made by a task that leaves it to be shown later."""
    model = str(store.publish("models", "delays", {"model.json": "{}"}))
    Attempt(store, "train").note("hit", result={"model": model}, tracked=model)
    track_training(store, model)
    return model


def _command(ended: LocalRun, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> Result:
    monkeypatch.setattr(run_module, "run_pipeline", lambda *arguments: ended)  # What follows a run is tested.
    app = typer.Typer()
    app.command()(run_module.run)
    return CliRunner().invoke(app, [str(EXAMPLE), "--store", store.address])


def test_the_exit_code_is_that_of_the_run_also_where_the_disk_is_full(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: Any) -> bool:
        raise OSError(28, "No space left on device")

    Attempt(store, "validate").note("failed", error="ContractBreachError", message="dest: 3 nulls", exit_code=2)
    monkeypatch.setattr(type(store.objects), "put_bytes", full)  # Nothing here can fill the disk.
    assert _command(LocalRun("run-1", tmp_path / "run.log", exit_code=3), store, monkeypatch).exit_code == 3
    warning = "MLflow could not be written, and no later run tries again, as no note of it was written: OSError"
    assert warning in caplog.text


@pytest.mark.usefixtures("tracked")
@pytest.mark.parametrize("away", [False, True])
def test_where_nobody_looks_the_command_waits_until_another_process_has_shown_a_run_that_succeeded(
    away: bool, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(RUN_ID, "run-0")
    Attempt(store, "run:tracking").note("warned", message="its server was away")
    create_record(store.objects, "tracking/left/run-0/run.json", {})
    monkeypatch.setenv(RUN_ID, "run-1")
    if away:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    Attempt(store, "split").note("finished", result={}, memo=True)
    monkeypatch.setattr(projection, "show_run", lambda *arguments: pytest.fail("shown here"))
    done = _command(LocalRun("run-1", tmp_path / "run.log", exit_code=0), store, monkeypatch)
    assert (done.exit_code, "warning of run-0: its server was away" in done.output) == (0, True)
    unshown = "does not show this run yet: MLflow could not be written, the next run tries again: ServerAwayError"
    assert (unshown in done.output, runs_left(store)) == (away, ["run-1"] * away)
    assert away or _shown(store, "pipelines")["run-1"].info.status == "FINISHED"


@pytest.mark.usefixtures("tracked")
def test_a_run_that_failed_ends_before_it_is_shown_and_is_noted_so_that_the_next_run_shows_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[list[str]] = []

    class Hangs:
        def __init__(self, command: list[str], **_: Any) -> None:
            assert runs_left(store) == ["run-1"], "noted before the process starts"
            started.append(command)

        def wait(self, *_: Any) -> None:
            pytest.fail("waited for")

    Attempt(store, "validate").note("failed", error="ContractBreachError", message="dest: 3 nulls", exit_code=2)
    failure = {"error": "ContractBreachError", "message": "dest: 3 nulls", "exit_code": 2}
    ended = LocalRun("run-1", tmp_path / "run.log", exit_code=2, failure=failure)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess, "Popen", Hangs)
        assert (_command(ended, store, monkeypatch).exit_code, len(started)) == (2, 1)
    monkeypatch.setenv(RUN_ID, "run-2")
    after = _command(LocalRun("run-2", tmp_path / "run.log", exit_code=0), store, monkeypatch)
    assert "MLflow does not show 1 earlier run yet; trying again" in after.output
    assert (_shown(store, "pipelines")["run-1"].info.status, runs_left(store)) == ("FAILED", [])


def test_the_wait_for_what_shows_a_run_has_an_end(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(shown_projection, "PATIENCE", 0.1)
    slow = subprocess.Popen(["sleep", "60"])
    for run in ("run-0", "run-1"):
        create_record(store.objects, f"tracking/left/{run}/run.json", {})
    monkeypatch.setattr(shown_projection, "show_apart", lambda *_: slow)
    log = tmp_path / "run.log"
    done = _command(LocalRun("run-1", log, exit_code=0), store, monkeypatch)
    assert (done.exit_code, slow.poll(), f"does not show this run yet: {log}" in done.output) == (0, None, True)
    assert "warning of run-0: its process is at work, or was ended" in done.output
    slow.kill()
    slow.wait()


def test_a_run_that_is_being_shown_is_not_shown_a_second_time(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PRICES, "{}")  # `main` sets it, and is in this process here.
    shown: list[str] = []
    for run in ("run-1", "run-2"):
        create_record(store.objects, f"tracking/left/{run}/run.json", {})

    def first(_: ArtifactStore, run: str) -> bool:
        shown.append(run)
        if not second.is_alive():
            second.start()
            second.join(0.3)
        return True

    second = threading.Thread(target=projection.main, args=(store.address, "run-2", "run-1"))
    monkeypatch.setattr(projection, "show_run", first)  # Only which process shows a run is tested.
    projection.main(store.address, "run-1")
    second.join()
    assert shown == ["run-1", "run-2"]


def test_what_the_tasks_left_is_shown_once_with_its_price_and_also_of_a_run_that_was_killed(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LATER, "1")
    store.record("runs/run-1/plan.json", {"project": "flights", "prices": {"per_hour": {"default": 3600.0}}})
    model = _trained(store)
    store.append(f"measurements/{model}", {"stage": "train", "seconds": 2.0})
    assert not (Path(store.address) / "mlflow").exists()
    monkeypatch.delenv(RUN_ID)  # Another process than one of the run finds it killed.
    close_run(store, "run-1", killed=True)
    runs = _shown(store, "delays")
    assert runs["train"].data.tags["gatehouse.reference"] == model
    assert runs["train"].data.metrics["cost"] == 2.0
    assert runs["train"].data.tags["mlflow.parentRunId"] == runs["run-1"].info.run_id
    assert (runs["train"].info.status, runs["run-1"].info.status) == ("FINISHED", "KILLED")
    assert show_apart(store, "run-1", Path("/dev/null")) is None


@pytest.mark.usefixtures("tracked")
@pytest.mark.parametrize(("status", "worked"), [("CANCELED", False), ("FAILED", True)])
def test_a_run_that_was_stopped_is_shown_as_killed_with_every_page_of_its_trials(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, status: str, worked: bool
) -> None:
    monkeypatch.setattr(mlflow_client, "PAGE", 2)  # A page of MLflow holds a thousand.
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        experiment = tracking.experiment(client, "pipelines")
        above = pipeline_run(tracking, client, experiment, "run-1")
        for number in range(5):
            mlflow_client.create_run(client, experiment, {"trial": str(number)}, f"trial-{number}", above)
    if worked:
        Attempt(store, "split").note("finished", result={}, memo=True)
    Attempt(store, "tune")
    outcome = outcome_of([event for _, event in events(store, "run-1")], status)
    record_end(store, "run-1", outcome, "gatehouse run", project="delays", pipeline="training")
    create_record(store.objects, "tracking/left/run-1/run.json", {})
    projection.main(store.address, "run-1")
    runs = _shown(store, "pipelines")
    assert runs.pop("split").info.status == "FINISHED" if worked else "split" not in runs
    assert {run.info.status for run in runs.values()} == {"KILLED"} and len(runs) == 6
    assert runs_left(store) == []


def test_what_could_not_be_shown_is_shown_after_the_next_run(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = str(store.publish("models", "delays", {"model.json": "{}"}))
    Attempt(store, "train").note("finished", result={"model": model}, memo=True, tracked=model)
    monkeypatch.setenv(RUN_ID, "run-2")
    Attempt(store, "split").note("hit", result={})
    (Path(store.address) / "mlflow").write_text("no folder")
    # A run that can never be shown, because its plan is damaged, does not block the others.
    create_record(store.objects, "tracking/left/run-3/run.json", {})
    store.objects.put_bytes("runs/run-3/plan.json", b"{")
    for left in (["run-3", "run-1"], ["run-3"]):
        for run in ("run-1", "run-2"):
            if apart := show_apart(store, run, tmp_path / "log"):
                assert apart.wait(300) == 0, (tmp_path / "log").read_text()
        assert runs_left(store) == left
        assert ("FileExistsError" in backlog_reason(store, "run-1"), "plan.json" in backlog_reason(store, "run-3")) == (
            True,
            True,
        )
        (Path(store.address) / "mlflow").unlink(missing_ok=True) if len(left) == 2 else None
    assert set(_shown(store, "delays")) == {"run-1", "train"}


def test_what_is_gone_from_the_store_is_not_tried_again(store: ArtifactStore, caplog: pytest.LogCaptureFixture) -> None:
    missing = f"models/delays/sha256-{'0' * 64}"
    Attempt(store, "train").note("finished", result={"model": missing}, memo=True, tracked=missing)
    assert projection.show_run(store, "run-1")
    assert "MLflow could not be written: MissingArtifactError" in caplog.text


def test_a_ledger_that_a_task_left_is_noted_until_its_run_has_ended_and_is_shown(
    store: ArtifactStore, tmp_path: Path
) -> None:
    leave_ledger(store, "delays")
    assert show_apart(store, "run-2", tmp_path / "log") is None, "run-1 goes on"
    assert (left_by(store, "run-1").ledgers, runs_left(store)) == (("delays",), [])
    apart = show_apart(store, "run-1", tmp_path / "log")
    assert apart is not None and apart.wait(300) == 0
    assert (left_by(store, "run-1").ledgers, runs_left(store)) == ((), [])


def test_a_server_that_is_away_is_a_warning_of_the_task_that_leaves_it(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LATER, "1")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    _trained(store)
    (warned,) = [event for _, event in events(store, "run-1") if event.event == "warned"]
    assert (warned.stage, "127.0.0.1:9 refuses connections" in warned.body["message"]) == ("train:tracking", True)


def test_a_store_that_was_removed_meanwhile_is_not_made_again(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", projection.__name__, str(tmp_path / "store"), "run-1"], check=True)
    assert not (tmp_path / "store").exists()
