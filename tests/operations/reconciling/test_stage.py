"""Unreported ends are recorded, posted and cleaned up after once; living processes are left alone."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

import pytest

from gatehouse.kfp_api.client import KfpApi
from gatehouse.operations.metrics.table import read
from gatehouse.operations.reconciling import unreported
from gatehouse.operations.reconciling.stage import ReconcileRequest, ReconcileResult, reconcile
from gatehouse.runtime.process import here, start_time
from gatehouse.store import leases
from gatehouse.store.run import Attempt, end_of
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import RUN, create_run, tracking_of
from tests.operations.alerting.hook import Hook
from tests.operations.conftest import RUN as OWN
from tests.stand_ins.kfp_api import PIPELINE, KfpServer


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unreported, "_GRACE", timedelta(0))


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
    store: ArtifactStore, gone: str, hook: Hook
) -> None:
    begin(store, "dead", gone)
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
    for task in ("retrieve-training-set", "split", "alert", "alert-2"):
        kfp_server.objects.begin_task(run, task)
    began = api.run(run).tasks["retrieve-training-set"].timestamp()
    for stage, at in (("retrieve_training_set", 45.5), ("split", -5.0), ("train", 90.0), ("alert", 91.0)):
        for event in ("started", "finished"):
            body = {"at": began + at, "seconds": 0.0, "result": {}}
            store.record(f"runs/{run}/{stage}.1.{event}.json", body)
    kfp_server.objects.set_state(run, "SUCCEEDED")
    look(store)
    # A task of a run that is tried again begins once more: nobody knows how long its first attempt waited.
    waited = {"retrieve_training_set": 45.5, "split": None, "train": None, "alert": None}
    assert {row.stage: row.queue_seconds for row in read(store) if row.stage} == waited


def test_leftovers_of_dead_writers_go_and_those_of_living_ones_stay(
    store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = store.local_folder / "tmp" / "work-dead"
    dead.mkdir(parents=True)
    with store.workspace() as living, leases.Lease(store.objects, ["blobs/x"]):
        assert look(store).removed == 1
        assert living.is_dir() and not dead.exists() and len(list(store.objects.list(leases.LEASES))) == 1
        monkeypatch.setattr(leases, "LEASE_LIMIT", -60.0)
        assert look(store).removed == 1 and not list(store.objects.list(leases.LEASES))
