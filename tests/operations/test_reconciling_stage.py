"""Unreported ends and late schedules are recorded and posted once; living processes are left alone."""

import os
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from gatehouse.configuration.schedule import Schedule
from gatehouse.kfp_api.client import KfpApi
from gatehouse.operations import reconciling_stage
from gatehouse.operations.ending_stage import Outcome, State, record_end
from gatehouse.operations.metrics import read, update
from gatehouse.operations.reconciling_stage import (
    ReconcileRequest,
    ReconcileResult,
    last_due,
    late_schedules,
    reconcile,
)
from gatehouse.runtime.process import here, start_time
from gatehouse.runtime.variables import UI
from gatehouse.store.run import Attempt, end_of
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.tracking.mlflow_client import JOB, RUN, create_run, find_run, tracking_of
from gatehouse.tracking.sending import open_job
from tests.operations.conftest import RUN as OWN
from tests.operations.hook import Hook
from tests.stand_ins.kfp_api import PIPELINE, KfpServer

NIGHTLY: dict[str, Any] = {"cron": "0 0 4 * * *", "sla_hours": 3.0}
MONDAY = datetime(2030, 1, 7, tzinfo=UTC)
"""Later than any record is written, so that what these tests record counts as newer than what was due before."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciling_stage, "_GRACE", timedelta(0))


@pytest.fixture
def api(kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch) -> KfpApi:
    """KFP's API, at which all happened an hour ago."""
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    kfp_server.objects.clock = time.time() - 3600
    return KfpApi.connect()


def submit(api: KfpApi, pipeline: str = "flights-training", name: str = "r") -> str:
    made = api.pipeline(pipeline)
    return api.create_run(name, made.id, api.upload_version(made.id, PIPELINE).id, {"word": "a"}, "talks").id


FAILED = {"at": 1.0, "seconds": 1.0, "error": "E", "message": "m"}


def look(store: ArtifactStore, **more: Any) -> ReconcileResult:
    body = {"project": "flights", "pipelines": ("training", "monitoring"), "when": "fail"}
    return reconcile(ReconcileRequest.model_validate(body | more), store)


def begin(
    store: ArtifactStore, run: str, process: str, host: str = "", at: float = 0.0, project: str = "flights"
) -> None:
    plan = {"pipeline": "training", "project": project, "host": host or here(), "process": process}
    store.record(f"runs/{run}/plan.json", plan)
    store.record(f"runs/{run}/train.1.started.json", {"at": at or time.time(), "seconds": 0.0})


@pytest.fixture
def gone() -> str:
    """A process of this machine that has ended, as a record names it."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    named = f"{process.pid}:{start_time(process.pid)}"
    process.wait()
    return named


def test_a_run_whose_process_was_killed_ends_once_in_its_record_in_mlflow_and_by_notice(
    store: ArtifactStore, gone: str, hook: Hook, tmp_path: Path
) -> None:
    begin(store, "dead", gone)
    job = open_job(store, "job", "flights", tmp_path / "metrics", {}, {})
    with closing(MetricsFile(job.metrics)) as metrics:
        metrics.log({"loss": 0.5}, 7)
    job.lock.close()  # As the kernel does when a process is killed.
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        shown = create_run(client, tracking.experiment(client, "flights"), {RUN: "dead"}, "dead").info.run_id
    first, second = look(store), look(store)
    assert (first.unreported, second.unreported) == (("dead",), ())
    end = end_of(store, "dead") or {}
    names = ("state", "stage", "error", "by")
    assert [end[name] for name in names] == ["failed", "train", "KilledError", "reconcile"]
    with tracking.client() as client:
        assert client.get_run(shown).info.status == "KILLED"
        training = find_run(client, tracking.experiment(client, "flights"), JOB, "job")
    assert training is not None and (training.info.status, training.data.metrics) == ("KILLED", {"loss": 0.5})
    assert [row.state for row in read(store) if row.run == "dead"] == ["failed", "killed"]
    (body,) = hook.bodies
    assert (body["run"], body["pipeline"], body["stage"]) == ("dead", "training", "train")


def test_runs_that_live_or_may_live_and_those_of_other_projects_are_left_alone(store: ArtifactStore, gone: str) -> None:
    Attempt(store, "train")
    begin(store, "mine", f"{os.getpid()}:{start_time(os.getpid())}")
    begin(store, "elsewhere", gone, host="other/1")
    begin(store, OWN, gone)
    begin(store, "theirs", gone, project="shop")
    assert look(store).unreported == () and look(store, project="shop").unreported == ("theirs",)
    begin(store, "silent", gone, host="other/1", at=time.time() - 49 * 3600)
    assert look(store).unreported == ("silent",)


def test_an_end_of_long_ago_is_recorded_and_not_posted(store: ArtifactStore, gone: str, hook: Hook) -> None:
    begin(store, "old", gone, at=time.time() - 90_000)
    look(store)
    assert end_of(store, "old") is not None and not hook.posts


def test_unreported_ends_are_found_in_the_list_of_kfp(
    store: ArtifactStore, kfp_server: KfpServer, api: KfpApi, hook: Hook
) -> None:
    runs = {}
    for pipeline, state in (
        ("flights-training", "FAILED"),
        ("flights-monitoring", "CANCELED"),
        ("flights-training", "RUNNING"),
        ("flights-training", "SUCCEEDED"),
        ("shop-training", "FAILED"),
    ):
        run = submit(api, pipeline, f"{pipeline}-{state}")
        kfp_server.objects.set_state(run, state)
        runs[state if "shop" not in pipeline else "shop"] = run
    for state in ("RUNNING", "SUCCEEDED"):
        store.record(f"runs/{runs[state]}/train.1.failed.json", FAILED)
    assert set(look(store).unreported) == {runs["FAILED"], runs["CANCELED"], runs["SUCCEEDED"]}
    ends = {state: (end_of(store, run) or {}).get("state") for state, run in runs.items()}
    # A success for KFP is a failure if a stage failed.
    assert ends == {"FAILED": "failed", "CANCELED": "stopped", "SUCCEEDED": "failed", "RUNNING": None, "shop": None}
    assert len(hook.posts) == 3 and look(store).unreported == ()


def test_a_run_that_was_retried_in_kfp_ends_again(store: ArtifactStore, kfp_server: KfpServer, api: KfpApi) -> None:
    run = submit(api)
    kfp_server.objects.set_state(run, "FAILED")
    store.record(f"runs/{run}/train.1.failed.json", FAILED)
    assert look(store).unreported == (run,)
    kfp_server.objects.set_state(run, "RUNNING")
    store.record(f"runs/{run}/train.2.finished.json", {"at": 9.0, "seconds": 1.0, "result": {}})
    kfp_server.objects.set_state(run, "SUCCEEDED")
    assert look(store).unreported == (run,) and look(store).unreported == ()
    assert (end_of(store, run) or {})["state"] == "succeeded"
    assert [row.state for row in read(store) if not row.stage] == ["succeeded"]


def test_the_time_that_a_stage_waited_for_its_pod_is_in_the_table(
    store: ArtifactStore, kfp_server: KfpServer, api: KfpApi
) -> None:
    """KFP says since when it works on a task; `create_time` is that of the run for all of them."""
    run = submit(api)
    kfp_server.objects.set_state(run, "RUNNING")
    for task in ("retrieve-training-set", "split", "require", "require-2"):
        kfp_server.objects.begin_task(run, task)
    began = api.run(run).tasks["retrieve-training-set"].timestamp()
    for stage, at in (("retrieve_training_set", 45.5), ("split", -5.0), ("train", 90.0), ("require", 91.0)):
        for event in ("started", "finished"):
            body = {"at": began + at, "seconds": 0.0, "result": {}}
            store.record(f"runs/{run}/{stage}.1.{event}.json", body)
    kfp_server.objects.set_state(run, "SUCCEEDED")
    look(store)
    # A task of a run that is tried again begins once more: nobody knows how long its first attempt waited.
    waited = {"retrieve_training_set": 45.5, "split": None, "train": None, "require": None}
    assert {row.stage: row.queue_seconds for row in read(store) if row.stage} == waited


def test_leftovers_of_dead_writers_go_and_those_of_living_ones_stay(store: ArtifactStore) -> None:
    dead = store.local_folder / "tmp" / "work-dead"
    dead.mkdir(parents=True)
    with store.workspace() as living:
        assert look(store).removed == 1
        assert living.is_dir() and not dead.exists()


def late(store: ArtifactStore, at: datetime, **schedules: dict[str, Any]) -> list[str]:
    update(store)
    return [schedule.message for schedule in late_schedules(store, read(store), "flights", schedules, at.timestamp())]


@pytest.mark.parametrize(
    ("body", "until", "due"),
    [
        (NIGHTLY, MONDAY + timedelta(hours=4), MONDAY + timedelta(hours=4)),
        (NIGHTLY, MONDAY + timedelta(hours=3), MONDAY - timedelta(hours=20)),
        ({"cron": "0 0 4 1 * *"}, MONDAY, MONDAY - timedelta(days=6) + timedelta(hours=4)),
        ({"interval": "PT30M"}, MONDAY, MONDAY),
        ({"cron": "* * * * * *"}, MONDAY, MONDAY),
        (NIGHTLY, MONDAY - timedelta(days=59, hours=21), None),  # Nothing was due since the schedule was seen.
    ],
)
def test_the_last_time_that_was_due_is_found(body: dict[str, Any], until: datetime, due: datetime | None) -> None:
    assert last_due(Schedule.model_validate(body), MONDAY - timedelta(days=60), until) == due


def test_a_schedule_is_late_when_its_hours_are_over_and_not_before(store: ArtifactStore) -> None:
    assert late(store, MONDAY, training=NIGHTLY) == []
    assert late(store, MONDAY + timedelta(hours=6, minutes=59), training=NIGHTLY) == []
    (message,) = late(store, MONDAY + timedelta(hours=7), training=NIGHTLY)
    assert message.startswith("schedule training: training was due at 2030-01-07 04:00 UTC")


@pytest.mark.parametrize(
    ("project", "pipeline", "state", "began", "is_late"),
    [
        ("flights", "training", "succeeded", 4.5, False),
        ("flights", "training", "failed", 4.5, True),
        ("flights", "training", "succeeded", 3.5, True),
        ("flights", "training", "succeeded", 6.5, True),  # It takes an hour, and the hours end at seven.
        ("flights", "training", "succeeded", 7.5, True),
        ("flights", "monitoring", "succeeded", 4.5, True),
        ("shop", "training", "succeeded", 4.5, True),
    ],
)
def test_only_a_success_of_a_run_since_it_was_due_counts(
    store: ArtifactStore, project: str, pipeline: str, state: State, began: float, is_late: bool
) -> None:
    late(store, MONDAY, nightly=NIGHTLY | {"pipeline": "training"})
    at = (MONDAY + timedelta(hours=began)).timestamp()
    record_end(store, "run", Outcome(state, began=at, seconds=3600.0), "test", project=project, pipeline=pipeline)
    assert bool(late(store, MONDAY + timedelta(hours=8), nightly=NIGHTLY | {"pipeline": "training"})) == is_late


def test_a_schedule_without_hours_or_switched_off_is_never_late(store: ArtifactStore) -> None:
    for body in ({"cron": NIGHTLY["cron"]}, NIGHTLY | {"enabled": False}):
        assert late(store, MONDAY, training=body) == []
        assert late(store, MONDAY + timedelta(days=9), training=body) == []


def test_a_late_schedule_is_posted_once_for_each_due_time(
    store: ArtifactStore, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reconciling_stage, "_first_seen", lambda *_: datetime.now(UTC) - timedelta(days=3))
    monkeypatch.setenv(UI, "http://kfp.example")
    body = {"project": "flights", "pipelines": ("training",), "schedules": {"training": NIGHTLY}}
    for more in ({"when": "never"}, *[{"when": "fail", "owners": {"": "ml@acme"}}] * 2):
        result = reconcile(ReconcileRequest.model_validate(body | more), store)
        assert "1 schedules are late" in result.summary and "was due at" in result.warnings[0]
    (posted,) = hook.bodies
    assert posted["event"] == "schedule-late" and "owner: ml@acme" in posted["text"]
    assert (posted["state"], posted["facts"]["owner"]) == ("late", "ml@acme") and posted["version"] == 1
    assert "was due at" in posted["message"] and posted["idempotency_key"]
    assert posted["links"] == {"KFP": "http://kfp.example/#/recurringruns"}


def test_a_first_run_that_began_before_its_interval_was_seen_is_in_time(store: ArtifactStore) -> None:
    schedule = {"interval": "PT6H", "sla_hours": 2.0}
    late(store, MONDAY, monitoring=schedule)
    for hours in (0, 6):
        outcome = Outcome("succeeded", began=(MONDAY + timedelta(hours=hours, minutes=-20)).timestamp())
        record_end(store, f"run-{hours}", outcome, "test", project="flights", pipeline="monitoring")
    assert late(store, MONDAY + timedelta(hours=8), monitoring=schedule) == []
