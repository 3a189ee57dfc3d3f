"""What ended unreported is recorded, told and cleaned once; what lives is left alone."""

import os
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gatehouse.kfp_api.client import KfpApi
from gatehouse.operations.alerting.notice import ADDRESS
from gatehouse.operations.metrics.table import read
from gatehouse.operations.reconciling import unreported
from gatehouse.operations.reconciling.stage import ReconcileRequest, ReconcileResult, reconcile
from gatehouse.runtime.process import here, start_time
from gatehouse.store import leases
from gatehouse.store.run import RUN_ID, Attempt, end_of
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import RUN, create_run, tracking_of
from tests.operations.alerting.hook import hooked
from tests.stand_ins.kfp_api import PIPELINE, KfpServer

OWN = "20240110-000000-self"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ArtifactStore:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(RUN_ID, OWN)
    monkeypatch.delenv(ADDRESS, raising=False)
    monkeypatch.delenv("GATEHOUSE_KFP_ENDPOINT", raising=False)
    monkeypatch.setattr(unreported, "_GRACE", timedelta(0))
    return ArtifactStore.open(tmp_path)


def look(store: ArtifactStore, **more: Any) -> ReconcileResult:
    body = {"project": "flights", "pipelines": ("training", "monitoring"), "when": "fail"}
    return reconcile(ReconcileRequest.model_validate(body | more), store)


def begin(store: ArtifactStore, run: str, process: str, host: str = "", at: float = 0.0) -> None:
    """A run on a machine, in which training has begun."""
    plan = {"pipeline": "training", "project": "flights", "host": host or here(), "process": process}
    store.record(f"runs/{run}/plan.json", plan)
    store.record(f"runs/{run}/train.1.started.json", {"at": at or time.time(), "seconds": 0.0})


@pytest.fixture
def gone() -> str:
    """A process of this machine that has ended, as a record names it."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    named = f"{process.pid}:{start_time(process.pid)}"
    process.wait()
    return named


def test_a_run_whose_process_was_killed_ends_in_its_record_in_mlflow_and_by_notice_once(
    store: ArtifactStore, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store, "dead", gone)
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        shown = create_run(client, tracking.experiment(client, "flights"), RUN, "dead", "dead", {}).info.run_id
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        first, second = look(store), look(store)
    assert (first.unreported, second.unreported) == (("dead",), ())
    end = end_of(store, "dead")
    assert end is not None
    assert (end["state"], end["stage"], end["error"], end["by"]) == ("failed", "train", "KilledError", "reconcile")
    with tracking.client() as client:
        assert client.get_run(shown).info.status == "KILLED"
    assert [row.state for row in read(store) if row.run == "dead"] == ["failed", "killed"]
    ((_, body),) = hook.posts
    assert (body["run"], body["pipeline"], body["stage"]) == ("dead", "training", "train")


def test_what_lives_or_may_live_is_left_alone(store: ArtifactStore, gone: str) -> None:
    begin(store, "mine", f"{os.getpid()}:{start_time(os.getpid())}")
    begin(store, "elsewhere", gone, host="other/1")
    begin(store, OWN, gone)
    assert look(store).unreported == ()
    begin(store, "silent", gone, host="other/1", at=time.time() - 49 * 3600)
    assert look(store).unreported == ("silent",)


def test_runs_of_kfp_that_ended_untold_are_found_in_its_list(
    store: ArtifactStore, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    kfp_server.objects.clock = time.time() - 3600
    api = KfpApi.connect()
    runs = {}
    for pipeline, state in (
        ("flights-training", "FAILED"),
        ("flights-monitoring", "CANCELED"),
        ("flights-training", "RUNNING"),
        ("flights-training", "SUCCEEDED"),
        ("shop-training", "FAILED"),
    ):
        made = api.pipeline(pipeline)
        version = api.upload_version(made.id, PIPELINE)
        run = api.create_run(f"{pipeline}-{state}", made.id, version.id, {"word": "a"}, "talks")
        kfp_server.objects.set_state(run.id, state)
        runs[state if "shop" not in pipeline else "shop"] = run.id
    for known in ("RUNNING", "SUCCEEDED"):
        store.record(
            f"runs/{runs[known]}/train.1.failed.json", {"at": 1.0, "seconds": 1.0, "error": "E", "message": "m"}
        )
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        found = look(store)
    assert set(found.unreported) == {runs["FAILED"], runs["CANCELED"], runs["SUCCEEDED"]}
    ends = {state: (end_of(store, run) or {}).get("state") for state, run in runs.items()}
    # What KFP calls a success is none where a stage failed.
    assert ends == {"FAILED": "failed", "CANCELED": "stopped", "SUCCEEDED": "failed", "RUNNING": None, "shop": None}
    assert len(hook.posts) == 3 and look(store).unreported == ()


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


def test_an_end_of_long_ago_is_recorded_and_not_told(
    store: ArtifactStore, gone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(store, "old", gone, at=time.time() - 90_000)
    with hooked(200) as hook:
        monkeypatch.setenv(ADDRESS, hook.url)
        look(store)
    assert end_of(store, "old") is not None and not hook.posts


def test_the_next_attempt_is_none_of_the_run_that_looks(store: ArtifactStore) -> None:
    Attempt(store, "train")
    assert look(store).unreported == ()


def test_runs_of_other_projects_in_the_store_are_left_to_them(store: ArtifactStore, gone: str) -> None:
    plan = {"pipeline": "training", "project": "shop", "host": here(), "process": gone}
    store.record("runs/theirs/plan.json", plan)
    store.record("runs/theirs/train.1.started.json", {"at": time.time(), "seconds": 0.0})
    assert look(store).unreported == () and look(store, project="shop").unreported == ("theirs",)


def test_a_run_that_somebody_retried_in_kfp_ends_again(
    store: ArtifactStore, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    kfp_server.objects.clock = time.time() - 3600
    api = KfpApi.connect()
    made = api.pipeline("flights-training")
    run = api.create_run("r", made.id, api.upload_version(made.id, PIPELINE).id, {"word": "a"}, "talks").id
    kfp_server.objects.set_state(run, "FAILED")
    store.record(f"runs/{run}/train.1.failed.json", {"at": 1.0, "seconds": 1.0, "error": "E", "message": "m"})
    assert look(store).unreported == (run,)
    kfp_server.objects.set_state(run, "RUNNING")
    store.record(f"runs/{run}/train.2.finished.json", {"at": 9.0, "seconds": 1.0, "result": {}})
    kfp_server.objects.set_state(run, "SUCCEEDED")
    assert look(store).unreported == (run,) and look(store).unreported == ()
    assert (end_of(store, run) or {})["state"] == "succeeded"
    assert [row.state for row in read(store) if not row.stage] == ["succeeded"]


def test_how_long_a_stage_waited_for_its_pod_is_in_the_table(
    store: ArtifactStore, kfp_server: KfpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KFP tells since when it works on a task; `create_time` is that of the run for all of them."""
    monkeypatch.setenv("GATEHOUSE_KFP_ENDPOINT", kfp_server.endpoint)
    kfp_server.objects.clock = time.time() - 3600
    api = KfpApi.connect()
    made = api.pipeline("flights-training")
    run = api.create_run("r", made.id, api.upload_version(made.id, PIPELINE).id, {"word": "a"}, "talks").id
    kfp_server.objects.set_state(run, "RUNNING")
    for task in ("retrieve-training-set", "split", "alert", "alert-2"):
        kfp_server.objects.begin_task(run, task)
    since = {name: at.timestamp() for name, at in api.run(run).tasks.items()}
    began = since["retrieve-training-set"]
    for stage, at in (("retrieve_training_set", 45.5), ("split", -5.0), ("train", 90.0), ("alert", 91.0)):
        for event in ("started", "finished"):
            body = {"at": began + at, "seconds": 0.0, "result": {}}
            store.record(f"runs/{run}/{stage}.1.{event}.json", body)
    kfp_server.objects.set_state(run, "SUCCEEDED")
    look(store)
    # A task of a run that is tried again begins once more: nobody knows how long its first attempt waited.
    waited = {"retrieve_training_set": 45.5, "split": None, "train": None, "alert": None}
    assert {row.stage: row.queue_seconds for row in read(store) if row.stage} == waited
