"""The outcome of a run: its record decides, whatever KFP says, and a later attempt replaces an earlier one."""

from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp.local_run import LocalRun, record_own_end
from gatehouse.operations.ending.outcome import outcome_in_kfp, outcome_of
from gatehouse.operations.ending.stage import EndRequest, report_end
from gatehouse.store.run import Event, end_of
from gatehouse.store.store import ArtifactStore
from tests.operations.conftest import RUN


def record_of(*texts: str) -> list[Event]:
    """Events written as `stage.attempt.event`, with a request after a slash if it matters, a second apart."""
    record = []
    for at, text in enumerate(texts):
        name, _, digest = text.partition("/")
        stage, attempt, event = name.split(".")
        error = {"error": "StoreError", "message": "away"} if event in ("failed", "stopped") else {}
        body: dict[str, Any] = {"at": 100.0 + at, "seconds": 0.0, "request_digest": digest} | error
        record.append(Event(stage, int(attempt), event, body))
    return record


def record(store: ArtifactStore, *texts: str) -> None:
    for event in record_of(*texts):
        store.record(f"runs/{RUN}/{event.stage}.{event.attempt}.{event.event}.json", event.body)


def end(store: ArtifactStore, kfp_state: str) -> None:
    report_end(EndRequest(project="flights", pipeline="training", kfp_state=kfp_state), store)


@pytest.mark.parametrize(
    ("texts", "kfp_state", "state", "stage"),
    [
        (["snapshot.1.started", "snapshot.1.finished"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "FAILED", "failed", ""),
        (["snapshot.1.started", "snapshot.1.hit"], "CANCELED", "stopped", ""),
        (
            ["train.1.started", "train.1.failed", "integrate.1.started", "integrate.1.finished"],
            "SUCCEEDED",
            "failed",
            "train",
        ),
        (["train.1.started", "train.1.failed", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started", "train.2.started", "train.2.finished"], "", "succeeded", ""),
        (["train.1.started/a", "train.2.started/b", "train.2.finished/b"], "", "succeeded", ""),
        (["train.1.started"], "SUCCEEDED", "failed", "train"),
        (["train.1.started"], "CANCELED", "stopped", "train"),
        (["train.1.started"], "KILLED", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.hit"], "KILLED", "stopped", ""),
        (["train.1.started", "integrate.1.started", "integrate.1.failed"], "CANCELED", "failed", "integrate"),
        (["train.1.started", "train.1.stopped"], "FAILED", "stopped", "train"),
        (["train.1.started", "train.1.tolerated"], "", "succeeded", ""),
        (["tune.1.started", "tune:train.1.started", "tune:train.1.failed", "tune.1.finished"], "", "succeeded", ""),
        (["alert.1.started/a", "alert.1.failed/a", "alert.2.started/b", "alert.2.finished/b"], "", "failed", "alert"),
        (["alert.1.failed/a", "alert.2.finished/b", "alert.3.finished/a"], "", "succeeded", ""),
        (["report_end.1.started"], "SUCCEEDED", "succeeded", ""),
        (["snapshot.1.started", "snapshot.1.finished"], "RUNNING", "stopped", ""),
        (["snapshot.1.started"], "RUNNING", "stopped", "snapshot"),
        (["train.1.started", "train.1.failed"], "RUNNING", "failed", "train"),
        (["snapshot.1.started", "snapshot.1.finished"], "PERHAPS", "unknown", ""),
    ],
)
def test_the_record_and_kfp_decide_the_outcome(texts: list[str], kfp_state: str, state: str, stage: str) -> None:
    outcome = outcome_of(record_of(*texts), kfp_state)
    assert (outcome.state, outcome.stage) == (state, stage)
    assert (outcome.error == "KilledError") == (state == "failed" and texts[-1] == "train.1.started")


def test_an_end_is_recorded_once_and_success_that_kfp_reports_wrongly_as_a_failure(store: ArtifactStore) -> None:
    record(store, "train.1.started", "train.1.failed", "split.1.started", "split.1.finished")
    for kfp_state in ("SUCCEEDED", "CANCELED"):
        end(store, kfp_state)
    recorded = end_of(store, RUN) or {}
    names = ("state", "stage", "project", "pipeline", "began", "seconds", "number")
    assert [recorded[name] for name in names] == ["failed", "train", "flights", "training", 100.0, 3.0, 1]


@pytest.mark.parametrize(("code", "state"), [(0, "succeeded"), (1, "failed"), (143, "stopped")])
def test_a_run_of_this_machine_records_the_end_that_its_last_task_could_not(
    store: ArtifactStore, code: int, state: str
) -> None:
    store.record(f"runs/{RUN}/plan.json", {"project": "flights", "pipeline": "training"})
    run = LocalRun(RUN, Path("log"), events=record_of("split.1.started", "split.1.finished"), exit_code=code)
    record_own_end(run, store)
    recorded = end_of(store, RUN) or {}
    assert (recorded["state"], recorded["by"]) == (state, "gatehouse run")


GOOD, BAD = ("train.1.started", "train.1.finished"), ("train.1.started", "train.1.failed")
AGAIN = ("-.1.x", "-.1.x", "train.2.started", "train.2.finished")


def test_a_run_that_is_tried_again_ends_again_and_its_last_end_counts(store: ArtifactStore) -> None:
    record(store, *BAD)
    end(store, "FAILED")
    record(store, *AGAIN)
    for _ in range(2):
        end(store, "SUCCEEDED")
    last = end_of(store, RUN) or {}
    assert (last["state"], last["number"]) == ("succeeded", 2)


@pytest.mark.parametrize(
    ("texts", "recorded", "later", "kfp_state", "state"),
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
    store: ArtifactStore, texts: tuple[str, ...], recorded: str, later: tuple[str, ...], kfp_state: str, state: str
) -> None:
    record(store, *texts)
    if recorded:
        end(store, recorded)
    record(store, *later)
    assert outcome_in_kfp(store, RUN, kfp_state).state == state
