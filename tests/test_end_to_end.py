"""The training pipeline on four weeks of real flights, through KFP's local runner, as a user runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

import gatehouse
from gatehouse.components.artifacts.reference import references_in
from gatehouse.components.artifacts.run import RUN_ID, events
from gatehouse.components.artifacts.stage import FAULT, declared_stages
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.registry.ledger import Ledger
from gatehouse.components.validation.report import page
from gatehouse.local_run import LocalRun, run_pipeline

PACKAGE = Path(gatehouse.__file__).parent
WINDOW = "2013-01-01/2013-01-29"
MODEL = "flight-delays"
FRAMEWORKS = {"torch", "feast", "mlflow"}

pytestmark = pytest.mark.timeout(600)


def write_project(folder: Path, **changes: Any) -> Path:
    """The example project with boundaries, budgets and bars for four weeks; `changes` are dotted keys."""
    shutil.copytree(PACKAGE / "pipelines" / "projects" / "flights", folder)
    shutil.copytree(PACKAGE / "feature_repo", folder / "features", ignore=shutil.ignore_patterns("__pycache__"))
    project = yaml.safe_load((folder / "project.yaml").read_text())
    project["features"]["repo"] = "features"
    project["split"] = {"train_until": "2013-01-19", "validation_until": "2013-01-23", "gap": "PT24H"}
    training = project["training"]
    training["model"] |= {"hidden": [32]}
    training["data"] |= {"batch_size": 512}
    training["optimizer"] |= {"learning_rate": 0.003}
    training["stopping"] |= {"epochs": 2}
    project["tuning"]["trials"] = 2
    project["tuning"]["budget"] |= {"stopping.epochs": 1}
    project["tuning"]["parameters"] = [{"name": "model.dropout", "type": "double", "min": 0, "max": 0.2}]
    policy = yaml.safe_load((folder / "policy.yaml").read_text())
    policy |= {"bars": {"roc_auc": {"min": 0.6}}, "must_beat_baseline": [], "slices": {"roc_auc": 0.0}}
    for dotted, value in changes.items():
        section, _, key = dotted.partition("__")
        (policy if section == "policy" else project[section])[key] = value
    (folder / "project.yaml").write_text(yaml.safe_dump(project))
    (folder / "policy.yaml").write_text(yaml.safe_dump(policy))
    return folder


def run(project: Path, store: ArtifactStore, source: Path, **arguments: Any) -> LocalRun:
    return run_pipeline(
        project, "training", store, {"source": str(source), "window": WINDOW} | arguments, watch=lambda _: None
    )


def states(outcome: LocalRun) -> dict[str, str]:
    """How each stage ended: `finished`, `hit`, `failed`, or nothing where it never began."""
    latest = {task.stage: outcome.latest(task.stage) for task in outcome.plan}
    return {stage: event.event for stage, event in latest.items() if event}


def explain(outcome: LocalRun) -> str:
    return f"{outcome.failure}\n{outcome.log.read_text()[-3000:]}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_project(tmp_path_factory.mktemp("projects") / "flights")


@pytest.fixture(scope="module")
def first(
    tmp_path_factory: pytest.TempPathFactory, project: Path, flights_archive: Path
) -> tuple[ArtifactStore, LocalRun]:
    """A store in which the project ran once, and that run."""
    store = ArtifactStore.open(tmp_path_factory.mktemp("first") / "store")
    outcome = run(project, store, flights_archive)
    assert outcome.exit_code == 0, explain(outcome)
    return store, outcome


@pytest.fixture
def copy(first: tuple[ArtifactStore, LocalRun], tmp_path: Path) -> ArtifactStore:
    """A copy of that store in another place."""
    shutil.copytree(first[0].address, tmp_path / "elsewhere")
    return ArtifactStore.open(tmp_path / "elsewhere")


@pytest.fixture(scope="module")
def raw_folder(tmp_path_factory: pytest.TempPathFactory, flights_archive: Path) -> Path:
    """The raw files, to be changed by a test in a copy."""
    folder = tmp_path_factory.mktemp("raw")
    with tarfile.open(flights_archive) as archive:
        for member in archive.getmembers():
            if member.name.endswith((".csv", ".csv.zip")):
                (folder / Path(member.name).name).write_bytes(archive.extractfile(member).read())  # type: ignore[union-attr]
    return folder


def test_the_first_run_registers_a_champion_and_every_reference_verifies(first: tuple[ArtifactStore, LocalRun]) -> None:
    store, outcome = first
    assert set(states(outcome).values()) == {"finished"}
    registered = outcome.result("register")
    assert (registered["decision"], registered["version"]) == ("approved", 1)
    assert set(registered["aliases"]) == {"champion", "staging"}
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


def test_an_unchanged_run_is_all_memo_and_imports_no_framework(
    first: tuple[ArtifactStore, LocalRun], project: Path, flights_archive: Path
) -> None:
    store, before = first
    records = len(Ledger(store, MODEL).records())
    for _ in range(2):
        again = run(project, store, flights_archive)
        assert again.exit_code == 0, explain(again)
        memoised = {stage: state for stage, state in states(again).items() if _memoised(stage)}
        assert set(memoised.values()) == {"hit"}
        assert again.result("snapshot")["unchanged"]
        assert all(again.result(task.stage) == before.result(task.stage) for task in before.plan)
        for event in again.events:
            assert not FRAMEWORKS & set(event.body.get("imported", ())), event.stage
    assert len(Ledger(store, MODEL).records()) == records


def test_a_store_copied_elsewhere_verifies_and_hits(copy: ArtifactStore, project: Path, flights_archive: Path) -> None:
    again = run(project, copy, flights_archive)
    assert again.exit_code == 0, explain(again)
    assert {state for stage, state in states(again).items() if _memoised(stage)} == {"hit"}
    for reference in copy.references():
        copy.verify(reference)


def test_forcing_a_stage_runs_it_and_only_it(copy: ArtifactStore, project: Path, flights_archive: Path) -> None:
    again = run(project, copy, flights_archive, force="split")
    assert again.exit_code == 0, explain(again)
    ran = {stage for stage, state in states(again).items() if _memoised(stage) and state == "finished"}
    assert ran == {"split"}


def test_a_worse_candidate_restarts_at_tuning_and_is_refused(
    first: tuple[ArtifactStore, LocalRun], copy: ArtifactStore, tmp_path: Path, flights_archive: Path
) -> None:
    worse = write_project(tmp_path / "worse", training__optimizer={"learning_rate": 1e-6})
    outcome = run(worse, copy, flights_archive)
    assert outcome.exit_code == 0, explain(outcome)
    ended = states(outcome)
    ran = {stage for stage, state in ended.items() if _memoised(stage) and state == "finished"}
    assert ran == {"tune", "train", "evaluate"}
    champion = first[1].result("train")["model"]
    assert outcome.result("resolve")["champion"] == champion != outcome.result("train")["model"]
    assert outcome.result("register")["decision"] == "refused"
    assert any("champion log_loss" in reason for reason in outcome.result("evaluate")["reasons"])
    assert Ledger(copy, MODEL).state().champion == 1


def _rewrite_flights(source: Path, target: Path, change: Callable[[list[str]], list[str]]) -> Path:
    shutil.copytree(source, target)
    with zipfile.ZipFile(target / "flights.csv.zip") as archive:
        lines = archive.read(archive.namelist()[0]).decode().splitlines()
    with zipfile.ZipFile(target / "flights.csv.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("flights.csv", "\n".join(change(lines)) + "\n")
    return target


def test_a_breach_of_contract_stops_before_training_and_names_column_and_rows(
    raw_folder: Path, project: Path, tmp_path: Path
) -> None:
    def break_three_rows(lines: list[str]) -> list[str]:
        origin = lines[0].split(",").index("origin")
        for row in (5, 6, 7):
            cells = lines[row].split(",")
            cells[origin] = "XXX"
            lines[row] = ",".join(cells)
        return lines

    broken = _rewrite_flights(raw_folder, tmp_path / "broken", break_three_rows)
    outcome = run(project, ArtifactStore.open(tmp_path / "store"), broken)
    assert outcome.exit_code == 2
    assert outcome.failure is not None and outcome.failure["error"] == "ContractBreachError"
    assert "flights" in outcome.failure["message"] and "origin" in outcome.failure["message"]
    assert "3 " in outcome.failure["message"]
    ended = states(outcome)
    assert ended["validate"] == "finished" and ended["require_contract"] == "failed"
    assert not {"compute_features", "tune", "train"} & set(ended)
    store = ArtifactStore.open(tmp_path / "store")
    assert "<html" in page(store, outcome.result("validate")["validation"])


def test_one_changed_raw_row_runs_everything_that_reads_it(
    copy: ArtifactStore, raw_folder: Path, tmp_path: Path, project: Path
) -> None:
    def delay_one(lines: list[str]) -> list[str]:
        header = lines[0].split(",")
        cells = lines[100].split(",")
        cells[header.index("distance")] = str(int(cells[header.index("distance")]) + 1)
        return [*lines[:100], ",".join(cells), *lines[101:]]

    changed = _rewrite_flights(raw_folder, tmp_path / "changed", delay_one)
    outcome = run(project, copy, changed, backfill="one delay was corrected")
    assert outcome.exit_code == 0, explain(outcome)
    ended = {stage: state for stage, state in states(outcome).items() if _memoised(stage)}
    assert set(ended.values()) == {"finished"}


def test_a_planted_leak_is_caught_before_training(tmp_path: Path, flights_archive: Path) -> None:
    leaky = write_project(tmp_path / "leaky")
    view = leaky / "features" / "views" / "aircraft_last_leg.sql"
    honest = view.read_text()
    stamped = honest.replace("landed_at AS event_timestamp", "scheduled_at AS event_timestamp")
    stamped = stamped.replace("GROUP BY tailnum, landed_at", "GROUP BY tailnum, scheduled_at")
    assert stamped.count("scheduled_at") == 2
    view.write_text(stamped)
    outcome = run(leaky, ArtifactStore.open(tmp_path / "store"), flights_archive)
    assert outcome.exit_code == 2, explain(outcome)
    assert outcome.failure is not None and outcome.failure["error"] == "LeakageError", outcome.failure
    assert "aircraft_last_leg" in outcome.failure["message"]
    assert not {"tune", "train"} & set(states(outcome))


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()


def _start(project: Path, store: ArtifactStore, source: Path, fault: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gatehouse.cli", "run", str(project), "--store", store.address]
    return subprocess.Popen(
        [*command, "--source", str(source), "--window", WINDOW],
        env=os.environ | {FAULT: fault},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _wait_for(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def _runs(store: ArtifactStore) -> set[str]:
    return set(store.objects.folders("runs"))


def _of_run(run_id: str) -> list[psutil.Process]:
    """Processes that carry a run's id in their environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(RUN_ID) == run_id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("point", ["validate:start", "evaluate:finish"])
def test_a_run_killed_at_a_stage_boundary_leaves_no_process_and_the_next_one_finishes(
    first: tuple[ArtifactStore, LocalRun],
    copy: ArtifactStore,
    project: Path,
    flights_archive: Path,
    started: list[subprocess.Popen[bytes]],
    number: signal.Signals,
    point: str,
) -> None:
    known = _runs(copy)
    process = _start(project, copy, flights_archive, f"{point}:pause")
    started.append(process)

    def paused() -> bool:
        new = _runs(copy) - known
        return bool(new) and any(event.event == "paused" for _, event in events(copy, new.copy().pop()))

    _wait_for(paused, 60, f"the pause at {point}")
    run_id = (_runs(copy) - known).pop()
    assert _of_run(run_id)
    process.send_signal(number)
    process.wait(timeout=20)
    _wait_for(lambda: not _of_run(run_id), 10, "every process of the run to end")
    again = run(project, copy, flights_archive)
    assert again.exit_code == 0, explain(again)
    assert again.result("register") == first[1].result("register")


def test_a_run_killed_in_training_resumes_to_the_same_digest(
    first: tuple[ArtifactStore, LocalRun],
    copy: ArtifactStore,
    project: Path,
    flights_archive: Path,
    started: list[subprocess.Popen[bytes]],
) -> None:
    model = first[1].result("train")["model"]
    for folder in ("memo/train", "memo/tune", "memo/evaluate", "models", "evaluations", "experiments", "registry"):
        shutil.rmtree(Path(copy.address) / folder)
    known = _runs(copy)
    process = _start(project, copy, flights_archive, "")
    started.append(process)
    scratch = Path(copy.address) / "scratch"
    _wait_for(lambda: any(scratch.glob("train-*/checkpoints/steps/*/manifest.json")), 120, "the first checkpoint")
    run_id = (_runs(copy) - known).pop()
    process.kill()
    process.wait()
    _wait_for(lambda: not _of_run(run_id), 10, "every process of the run to end")
    again = run(project, copy, flights_archive)
    assert again.exit_code == 0, explain(again)
    assert again.result("train")["model"] == model
    assert json.dumps(again.result("evaluate")) == json.dumps(first[1].result("evaluate"))


def _memoised(stage: str) -> bool:
    return declared_stages()[stage].declared.effects.memo
