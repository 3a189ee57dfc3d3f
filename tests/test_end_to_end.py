"""The training pipeline on real flights, through KFP's local runner, as a user runs it."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil
import pytest

from gatehouse.data.validation.report import page
from gatehouse.kfp.local_run import LocalRun
from gatehouse.launchers.ranks import FAULT as TRAINING_FAULT
from gatehouse.registry.ledger import Ledger
from gatehouse.store.failures import FAULT
from gatehouse.store.reference import references_in
from gatehouse.store.run import RUN_ID, end_of, events
from gatehouse.store.stage import declared_stages
from gatehouse.store.store import ArtifactStore
from tests.small_example import MODEL, WINDOW, Row, change_flights, explain, run, write_project

FRAMEWORKS = {"torch", "feast", "mlflow"}
PATIENCE = 300.0
"""Seconds. Nothing here takes that long, also where several sessions share the machine."""

pytestmark = pytest.mark.timeout(900)


def states(outcome: LocalRun) -> dict[str, str]:
    """How each stage ended: `finished`, `hit`, `failed`, or nothing where it never began."""
    latest = {task.stage: outcome.latest(task.stage) for task in outcome.plan}
    return {stage: event.event for stage, event in latest.items() if event}


def memoised(outcome: LocalRun) -> dict[str, str]:
    """How each stage ended that the memo may spare."""
    stages = declared_stages()
    return {stage: state for stage, state in states(outcome).items() if stages[stage].declared.effects.memo}


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def test_the_first_run_registers_a_champion_and_every_reference_verifies(first: tuple[ArtifactStore, LocalRun]) -> None:
    store, outcome = first
    assert set(states(outcome).values()) == {"finished"}
    end = end_of(store, outcome.run)
    assert end is not None and (end["state"], end["pipeline"]) == ("succeeded", "training")
    registered = outcome.result("register")
    assert (registered["decision"], registered["version"]) == ("approved", 1)
    assert set(registered["aliases"]) == {"champion", "staging"}
    joined = outcome.latest("retrieve_training_set")
    assert joined is not None and FRAMEWORKS & set(joined.body["imported"]) == {"feast"}
    for reference in store.references():
        store.verify(reference)
    for event in outcome.events:
        assert all(store.exists(reference) for reference in references_in(event.body))


def test_mlflow_shows_the_version_with_its_lineage(first: tuple[ArtifactStore, LocalRun]) -> None:
    from mlflow import MlflowClient

    store, outcome = first
    uri = f"sqlite:///{store.address}/mlflow/mlflow.db"
    version = MlflowClient(tracking_uri=uri, registry_uri=uri).get_model_version_by_alias(MODEL, "champion")
    assert version.source == store.address_of(outcome.result("train")["model"])
    lineage = set(version.tags.values())
    for stage, field in (("snapshot", "snapshot"), ("retrieve_training_set", "training_set"), ("split", "split")):
        assert outcome.result(stage)[field] in lineage


def test_mlflow_is_shown_no_value_of_a_row(first: tuple[ArtifactStore, LocalRun]) -> None:
    """So an erasure has nothing to remove there: neither tail numbers nor flights."""
    store, _ = first
    shown = Path(store.address, "mlflow", "mlflow.db").read_bytes()
    assert MODEL.encode() in shown
    assert re.findall(rb"\bN\d{2,5}[A-Z]{0,2}\b|\b(?:US|VX|WN)\d+-(?:EWR|JFK|LGA)", shown) == []
    assert not (Path(store.address) / "mlflow" / "artifacts").exists()


def test_an_unchanged_run_elsewhere_is_all_memo_and_imports_no_framework(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, project: Path, raw: Path
) -> None:
    before = first[1]
    records = len(Ledger(copy, MODEL).records())
    for _ in range(2):
        again = run(project, copy, raw)
        assert again.exit_code == 0, explain(again)
        assert set(memoised(again).values()) == {"hit"}
        expected = {task.stage: before.result(task.stage) for task in before.plan}
        expected["snapshot"] |= {"unchanged": True}
        assert {task.stage: again.result(task.stage) for task in again.plan} == expected
        for event in again.events:
            assert not FRAMEWORKS & set(event.body.get("imported", ())), event.stage
    assert len(Ledger(copy, MODEL).records()) == records
    for reference in copy.references():
        copy.verify(reference)


def test_forcing_a_stage_runs_it_and_only_it(copy: ArtifactStore, project: Path, raw: Path) -> None:
    again = run(project, copy, raw, rerun="split")
    assert again.exit_code == 0, explain(again)
    assert _ran(again) == {"split"}


def _ran(outcome: LocalRun) -> set[str]:
    return {stage for stage, state in memoised(outcome).items() if state == "finished"}


def _changed(raw: Path, folder: Path, change: Callable[[int, Row], None]) -> Path:
    """A copy of the raw files in which every flight went through `change` with its number."""

    def cells(rows: Iterable[Row]) -> Iterator[Row]:
        for number, row in enumerate(rows):
            change(number, row)
            yield row

    shutil.copytree(raw, folder)
    change_flights(folder, cells)
    return folder


def test_a_breach_of_contract_stops_before_training_and_names_column_and_rows(
    raw: Path, project: Path, tmp_path: Path, started: list[subprocess.Popen[bytes]]
) -> None:
    """And what this process started besides goes on."""
    started.append(subprocess.Popen(["sleep", "900"]))

    def break_three_rows(number: int, row: Row) -> None:
        if number in (5, 6, 7):
            row["origin"] = "XXX"

    store = ArtifactStore.open(tmp_path / "store")
    outcome = run(project, store, _changed(raw, tmp_path / "broken", break_three_rows))
    assert outcome.exit_code == 2
    assert outcome.failure is not None and outcome.failure["error"] == "ContractBreachError"
    assert "flights" in outcome.failure["message"] and "origin" in outcome.failure["message"]
    assert "3 " in outcome.failure["message"]
    ended = states(outcome)
    assert ended["validate"] == "finished" and ended["require_contract"] == "failed"
    assert not {"compute_features", "tune", "train"} & set(ended)
    assert "<html" in page(store, outcome.result("validate")["validation"])
    end = end_of(store, outcome.run)
    assert end is not None and (end["state"], end["stage"]) == ("failed", "require_contract")
    assert started[0].poll() is None
    log = outcome.log.read_text()
    assert "\x1b" not in log
    assert f"stage require_contract failed: {outcome.failure['message']}" in log[log.rindex("Traceback") :]


def test_one_changed_raw_row_runs_what_reads_it_and_changes_each_reference(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, raw: Path, tmp_path: Path, project: Path
) -> None:
    """As far as the training set; that a stage runs whose input has another reference is shown by its own tests."""

    def lengthen_one(number: int, row: Row) -> None:
        if number == 100:
            row["distance"] = str(int(row["distance"]) + 1)

    changed = _changed(raw, tmp_path / "changed", lengthen_one)
    outcome = run(project, copy, changed, until="retrieve_training_set", backfill="one distance was corrected")
    assert outcome.exit_code == 0, explain(outcome)
    assert {"validate", "compute_features", "retrieve_training_set"} <= _ran(outcome)
    for stage in ("snapshot", *_ran(outcome)):
        assert not {*references_in(outcome.result(stage))} & {*references_in(first[1].result(stage))}, stage


def test_a_planted_leak_is_caught_before_training(copy: ArtifactStore, tmp_path: Path, raw: Path) -> None:
    leaky = write_project(tmp_path / "leaky")
    view = leaky / "features" / "views" / "aircraft_last_leg.sql"
    honest = view.read_text()
    stamped = honest.replace("landed_at AS event_timestamp", "scheduled_at AS event_timestamp")
    stamped = stamped.replace("GROUP BY tailnum, landed_at", "GROUP BY tailnum, scheduled_at")
    assert stamped.count("scheduled_at") == 2
    view.write_text(stamped)
    outcome = run(leaky, copy, raw)
    assert outcome.exit_code == 2, explain(outcome)
    assert outcome.failure is not None and outcome.failure["error"] == "LeakageError", outcome.failure
    assert "aircraft_last_leg" in outcome.failure["message"]
    assert not {"tune", "train"} & set(states(outcome))


def _start(project: Path, store: ArtifactStore, source: Path, **faults: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gatehouse.cli.main", "run", str(project), "--store", store.address]
    return subprocess.Popen(
        [*command, "--source", str(source), "--window", WINDOW],
        env=os.environ | faults,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE} s for {what}"
        time.sleep(0.05)


def _runs(store: ArtifactStore) -> set[str]:
    return set(store.objects.folders("runs"))


def _of_run(run_id: str) -> list[psutil.Process]:
    """Processes that carry a run's id in their environment."""
    result = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID) == run_id and process.status() != psutil.STATUS_ZOMBIE:
                result.append(process)
        except psutil.Error:
            continue
    return result


def test_runs_killed_at_stage_boundaries_leave_no_process_and_the_next_one_finishes(
    first: tuple[ArtifactStore, LocalRun],
    copy: ArtifactStore,
    project: Path,
    raw: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    for point, number in (
        ("validate:start", signal.SIGINT),
        ("validate:start", signal.SIGKILL),
        ("evaluate:finish", signal.SIGTERM),
    ):
        earlier = _runs(copy)
        process = _start(project, copy, raw, **{FAULT: f"{point}:pause"})
        started.append(process)
        _wait_for(lambda earlier=earlier: _is_paused(copy, _runs(copy) - earlier), f"the pause at {point}")
        run_id = (_runs(copy) - earlier).pop()
        assert _of_run(run_id)
        process.send_signal(number)
        process.wait(timeout=PATIENCE)
        _wait_for(lambda run_id=run_id: not _of_run(run_id), f"every process of the run to end after {number.name}")
    again = run(project, copy, raw)
    assert again.exit_code == 0, explain(again)
    assert again.result("register") == first[1].result("register")


def _is_paused(store: ArtifactStore, new: set[str]) -> bool:
    return any(event.event == "paused" for item in new for _, event in events(store, item))


def test_a_run_killed_in_training_resumes_to_the_same_digest(
    first: tuple[ArtifactStore, LocalRun],
    copy: ArtifactStore,
    project: Path,
    raw: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    model = first[1].result("train")["model"]
    made = f"models/{MODEL}"
    for folder in ("memo/train", made, f"measurements/{made}"):
        shutil.rmtree(Path(copy.address) / folder)
    earlier = _runs(copy)
    process = _start(project, copy, raw, **{TRAINING_FAULT: "hang:1"})
    started.append(process)
    scratch = Path(copy.address) / "scratch"
    _wait_for(lambda: any(scratch.glob("train-*/checkpoints/steps/*/manifest.json")), "the first checkpoint")
    run_id = (_runs(copy) - earlier).pop()
    process.kill()
    process.wait()
    _wait_for(lambda: not _of_run(run_id), "every process of the run to end")
    again = run(project, copy, raw)
    assert again.exit_code == 0, explain(again)
    assert again.result("train")["model"] == model
    measured = [json.loads(copy.objects.get_bytes(key)) for key in copy.objects.list(f"measurements/{model}")]
    (trained,) = (item for item in measured if item["stage"] == "train")
    assert "Resumed from checkpoint" in str(trained["log"])
    assert _ran(again) == {"train"}
