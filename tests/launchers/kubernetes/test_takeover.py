"""A launcher that starts again: it finds its job or the job's result, and leaves alone what belongs to another."""

import json
import os
import threading
import time
from pathlib import Path

import pytest

from gatehouse.launchers.kubernetes import transfer
from gatehouse.launchers.launcher import LOCATION, WEIGHTS, ClusterError, TrainingJob
from gatehouse.store.run import RUN_ID
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.scenarios import launcher_on, run_and_die, succeed
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object


def test_a_launcher_that_starts_again_finds_its_job(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def wait(cluster: Cluster, made: Object) -> None:
        assert go_on.wait(60)
        cluster.await_looks(1)
        succeed(cluster, made)

    monkeypatch.setenv(RUN_ID, "run-1")
    with kubernetes(wait) as cluster:
        run_and_die(store, job, cluster)
        assert len(cluster.jobs) == 1
        go_on.set()
        launcher_on(cluster, store, "pytorchjob").run(job)
        assert len(cluster.created) == 1
        assert cluster.jobs == {}


def test_a_run_that_is_published_leaves_the_checkpoints_of_another_run_of_the_same_job_that_goes_on(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checkpoints() -> list[str]:
        return list(store.objects.list("scratch/checkpoints"))

    with kubernetes(succeed) as cluster:
        monkeypatch.setenv(RUN_ID, "run-1")
        first = launcher_on(cluster, store, "pytorchjob")
        first.run(job)

        def publish_the_first(cluster: Cluster, made: Object) -> None:
            digest = made["metadata"]["annotations"]["gatehouse.dev/job"]
            store.objects.put_bytes(f"scratch/checkpoints/{digest}/000007/part-0.json", b"{}")
            first.forget(job)
            kept.extend(checkpoints())
            succeed(cluster, made)

        kept: list[str] = []
        cluster.scenario = publish_the_first
        monkeypatch.setenv(RUN_ID, "run-2")
        second = launcher_on(cluster, store, "pytorchjob")
        second.run(job)
        assert len(kept) == 1
        second.forget(job)
        assert checkpoints() == []


def test_the_inputs_of_a_job_stay_young_while_it_runs(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "DAY", 0.01)
    with transfer.uploaded_inputs(store, job.directory) as inputs:
        blobs = [Path(store.address) / entry.blob for entry in inputs]
        for blob in blobs:
            os.utime(blob, (0, 0))
        deadline = time.monotonic() + 60
        while not all(blob.stat().st_mtime for blob in blobs):
            assert blobs and time.monotonic() < deadline
            time.sleep(0.01)


def test_a_result_whose_launcher_was_killed_before_it_was_published_is_not_trained_again(
    store: ArtifactStore, job: TrainingJob
) -> None:
    with kubernetes(succeed) as cluster:
        launcher_on(cluster, store, "pytorchjob", nodes=1, machine="a3").run(job)
        (job.directory / WEIGHTS).unlink()
        again = launcher_on(cluster, store, "pytorchjob", machine="a3")
        again.run(job)
        assert len(cluster.created) == 1
        assert (job.directory / WEIGHTS).read_bytes() == b"weights"
        place = json.loads((job.directory / LOCATION).read_text())
        assert (place["machine"], place["machines"]) == ("a3", 1) and "gatehouse.hardware" in place["environment"]
        again.forget(job)
        launcher_on(cluster, store, "pytorchjob", machine="a3").run(job)
        assert len(cluster.created) == 2, "a model that is published is trained again where that is asked for"


def test_a_launcher_whose_job_another_has_taken_over_leaves_it_alone(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(lambda *_: None) as cluster:
        old = launcher_on(cluster, store, "pytorchjob")

        def meanwhile(*_: object, **__: object) -> None:
            run_and_die(store, job, cluster)
            raise SystemExit(143)

        old._api.list = meanwhile  # type: ignore[method-assign]
        with pytest.raises(SystemExit):
            old.run(job)
        assert len(cluster.jobs) == 1


def test_a_job_of_this_name_that_trains_something_else_is_left_alone(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(lambda *_: None) as cluster:
        run_and_die(store, job, cluster)
        (other,) = cluster.jobs.values()
        other["metadata"]["annotations"]["gatehouse.dev/job"] = "something else"
        with pytest.raises(ClusterError, match="Another job has the name of this one"):
            launcher_on(cluster, store, "pytorchjob").run(job)
        assert len(cluster.jobs) == 1


def test_a_job_that_is_being_deleted_is_waited_for_and_then_created_again(
    store: ArtifactStore, job: TrainingJob
) -> None:
    with kubernetes(lambda *_: None) as cluster:
        run_and_die(store, job, cluster)
        ((path, old),) = cluster.jobs.items()
        old["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        cluster.scenario = succeed
        launcher = launcher_on(cluster, store, "pytorchjob")
        get, looks = launcher._api.get, []

        def look(address: str) -> Object:
            looks.append(address)
            if len(looks) == 3:
                cluster.delete(path)
            return get(address)

        launcher._api.get = look  # type: ignore[method-assign]
        launcher.run(job)
        assert len(cluster.created) == 2


def test_a_launcher_in_a_pod_owns_its_job_and_takes_over_what_it_finds(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[str] = []
    with kubernetes(lambda *_: None) as cluster:
        for name in ("first", "second"):
            monkeypatch.setenv("KFP_POD_NAME", name)
            monkeypatch.setenv("KFP_POD_UID", f"uid-{name}")
            run_and_die(store, job, cluster)
            (made,) = cluster.jobs.values()
            owners += [owner["uid"] for owner in made["metadata"]["ownerReferences"]]
    assert owners == ["uid-first", "uid-second"]
