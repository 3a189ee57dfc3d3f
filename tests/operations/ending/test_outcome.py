"""What came of a run: its own record decides, whatever KFP says, and a later attempt makes good an earlier one."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.local_run import LocalRun, record_own_end
from gatehouse.operations.ending.outcome import outcome_in_kfp, outcome_of
from gatehouse.operations.ending.stage import EndRequest, report_end
from gatehouse.store.run import RUN_ID, Event, end_of
from gatehouse.store.store import ArtifactStore

RUN = "20240110-000000-abcd"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv(RUN_ID, RUN)
    return ArtifactStore.open(tmp_path)


def happened(*told: str) -> list[Event]:
    """Events written as `stage.attempt.event`, with what is asked for behind a slash where it matters, in order."""
    found = []
    for at, text in enumerate(told):
        name, _, asked = text.partition("/")
        stage, attempt, event = name.split(".")
        error = {"error": "StoreError", "message": "away"} if event in ("failed", "stopped") else {}
        body: dict[str, Any] = {"at": 100.0 + at, "seconds": 0.0, "asked": asked} | error
        found.append(Event(stage, int(attempt), event, body))
    return found


def record(store: ArtifactStore, *told: str) -> None:
    for event in happened(*told):
        store.record(f"runs/{RUN}/{event.stage}.{event.attempt}.{event.event}.json", event.body)


@pytest.mark.parametrize(
    ("told", "said", "state", "stage"),
    [
        (["snapshot.1.started", "snapshot.1.finished"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "FAILED", "failed", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "CANCELED", "stopped", ""),
        (["train.1.started", "train.1.failed", "probe.1.started", "probe.1.finished"], "SUCCEEDED", "failed", "train"),
        (["train.1.started", "train.1.failed", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started/a", "train.2.started/b", "train.2.finished/b"], "", "succeeded", ""),
        (["train.1.started"], "SUCCEEDED", "failed", "train"),
        (["train.1.started"], "CANCELED", "stopped", "train"),
        (["train.1.started"], "KILLED", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.hit"], "KILLED", "stopped", ""),
        (["train.1.started", "probe.1.started", "probe.1.failed"], "CANCELED", "failed", "probe"),
        (["train.1.started", "train.1.stopped"], "FAILED", "stopped", "train"),
        (["train.1.started", "train.1.tolerated"], "", "succeeded", ""),
        (["tune.1.started", "tune:train.1.started", "tune:train.1.failed", "tune.1.finished"], "", "succeeded", ""),
        (["alert.1.started/a", "alert.1.failed/a", "alert.2.started/b", "alert.2.finished/b"], "", "failed", "alert"),
        (["alert.1.failed/a", "alert.2.finished/b", "alert.3.finished/a"], "", "succeeded", ""),
        (["report_end.1.started"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.finished"], "COMPLETE", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.finished"], "CACHED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.finished"], "RUNNING", "stopped", ""),
        (["snapshot.1.started"], "RUNNING", "stopped", "snapshot"),
        (["train.1.started", "train.1.failed"], "RUNNING", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.finished"], "PERHAPS", "unknown", ""),
        (["train.1.started", "train.1.failed"], "PERHAPS", "failed", "train"),
    ],
)
def test_the_record_of_a_run_says_how_it_ended(told: list[str], said: str, state: str, stage: str) -> None:
    found = outcome_of(happened(*told), said)
    assert (found.state, found.stage) == (state, stage)


def test_a_stage_that_was_killed_is_named_with_the_likely_cause() -> None:
    found = outcome_of(happened("train.1.started"))
    assert found.error == "KilledError" and "killed, as for memory" in found.message


def test_success_that_kfp_reports_wrongly_is_recorded_as_a_failure(store: ArtifactStore) -> None:
    record(store, "train.1.started", "train.1.failed", "split.1.started", "split.1.finished")
    report_end(EndRequest(project="flights", pipeline="training", said="SUCCEEDED"), store)
    end = end_of(store, RUN)
    assert end is not None
    assert (end["state"], end["stage"], end["project"], end["pipeline"]) == ("failed", "train", "flights", "training")
    assert (end["began"], end["seconds"]) == (100.0, 3.0)


def test_the_end_of_a_run_is_recorded_once(store: ArtifactStore) -> None:
    for said in ("SUCCEEDED", "FAILED"):
        report_end(EndRequest(project="flights", pipeline="training", said=said), store)
    end = end_of(store, RUN)
    assert end is not None and end["state"] == "succeeded"


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (1, "failed"), (143, "stopped")])
def test_a_run_of_this_machine_records_the_end_that_its_last_task_could_not(
    store: ArtifactStore, code: int, state: str
) -> None:
    store.record(f"runs/{RUN}/plan.json", {"project": "flights", "pipeline": "training"})
    run = LocalRun(RUN, Path("log"), events=happened("split.1.started", "split.1.finished"), exit_code=code)
    record_own_end(run, store)
    end = end_of(store, RUN)
    assert end is not None and (end["state"], end["by"]) == (state, "gatehouse run")


def test_a_run_that_is_tried_again_ends_again_and_its_last_end_counts(store: ArtifactStore) -> None:
    request = EndRequest(project="flights", pipeline="training", said="FAILED")
    record(store, "train.1.started", "train.1.failed")
    for _ in range(2):
        report_end(request, store)
    first = end_of(store, RUN)
    assert first is not None and (first["state"], first["number"]) == ("failed", 1)
    for event in happened("-.1.x", "-.1.x", "train.2.started", "train.2.finished")[2:]:
        store.record(f"runs/{RUN}/{event.stage}.{event.attempt}.{event.event}.json", event.body)
    for _ in range(2):
        report_end(request.model_copy(update={"said": "SUCCEEDED"}), store)
    last = end_of(store, RUN)
    assert last is not None and (last["state"], last["number"]) == ("succeeded", 2)


GOOD, BAD = ("train.1.started", "train.1.finished"), ("train.1.started", "train.1.failed")
AGAIN = ("-.1.x", "-.1.x", "train.2.started", "train.2.finished")


@pytest.mark.parametrize(
    ("told", "recorded", "later", "said", "state"),
    [
        (GOOD, "COMPLETE", (), "SUCCEEDED", "succeeded"),
        (GOOD, "", (), "SUCCEEDED", "failed"),  # The task that records the end could not run.
        (GOOD, "FAILED", (), "SUCCEEDED", "failed"),
        (GOOD, "COMPLETE", (), "FAILED", "failed"),
        (GOOD, "PERHAPS", (), "SUCCEEDED", "succeeded"),  # An unknown word is no failure.
        (("train.1.started", "train.1.stopped"), "FAILED", (), "FAILED", "failed"),
        (("train.1.started", "train.1.stopped"), "FAILED", (), "CANCELED", "stopped"),
        (BAD, "FAILED", (), "FAILED", "failed"),
        (BAD, "FAILED", (), "SUCCEEDED", "failed"),
        (BAD, "FAILED", AGAIN, "SUCCEEDED", "succeeded"),  # It was tried again, which nobody recorded.
        (GOOD, "RUNNING", (), "CANCELED", "stopped"),
        (GOOD, "RUNNING", (), "SUCCEEDED", "succeeded"),  # The last task came from KFP's cache.
    ],
)
def test_a_run_has_succeeded_only_if_kfp_and_its_record_say_so(
    store: ArtifactStore, told: tuple[str, ...], recorded: str, later: tuple[str, ...], said: str, state: str
) -> None:
    record(store, *told)
    if recorded:
        report_end(EndRequest(project="flights", pipeline="training", said=recorded), store)
    record(store, *later)
    assert outcome_in_kfp(store, RUN, said).state == state
