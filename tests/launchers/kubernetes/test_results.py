"""What comes back from a job on a cluster: model, log and metrics, each verified, and nothing is left there."""

import json
import math
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.kubernetes.pod_metrics import sending_metrics
from gatehouse.launchers.launcher import LOG, METRICS, RESULT, WEIGHTS, TrainingFailedError, TrainingJob
from gatehouse.store.run import RUN_ID, Attempt
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import GPU_PERCENT, Machine
from gatehouse.tracking.spool import Position, SpoolWriter, dropped, read
from tests.launchers.kubernetes.scenarios import (
    Scenario,
    end_without_a_model,
    error_of,
    launcher_on,
    master_fails,
    run,
    succeed,
    train,
)
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object, container_of


def test_result_weights_and_log_come_back_and_the_job_is_removed(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    cluster = run(succeed, store, job, kind)
    assert (job.directory / WEIGHTS).read_bytes() == b"weights"
    assert "weights_sha256" in json.loads((job.directory / RESULT).read_text())
    assert (job.directory / LOG).read_text() == "epoch 1/1\n"
    assert len(cluster.created) == 1


def test_the_record_of_a_job_is_in_the_store_before_the_job_exists(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    seen: list[object] = []

    def look(cluster: Cluster, made: Object) -> None:
        (key,) = store.objects.list(f"jobs/{made['metadata']['name']}")
        seen.append(json.loads(store.objects.get_bytes(key))["about"])
        succeed(cluster, made)

    cluster = run(look, store, job, kind)
    (made,) = cluster.created
    assert seen == [{"kind": made["kind"], "namespace": "ml", "name": made["metadata"]["name"]}]


def test_metrics_of_all_pods_arrive_also_of_a_job_that_fails(
    store: ArtifactStore, job: TrainingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_NNODES", "2")
    attempt = Attempt(store, "train")

    def log_and_fail(cluster: Cluster, made: Object) -> None:
        address, folder, _ = container_of(made)[1]["command"][3:6]
        for number, loss in enumerate((0.5, float("nan"))):
            spool = tmp_path / f"pod-{number}"
            monkeypatch.setenv("PET_NODE_RANK", str(number))
            busy = {"system/gpu_0_utilization_percentage": 40.0 + 30 * number}
            monkeypatch.setattr(Machine, "gpus", lambda machine, busy=busy: busy)
            with sending_metrics(ArtifactStore.open(address), folder, spool):
                writer = SpoolWriter(spool)
                writer.log({f"loss_{number}": loss}, 7)
                writer.drop(number)
                writer.close()
        master_fails(cluster, made)

    with attempt.as_task():
        error_of(TrainingFailedError, log_and_fail, store, job, "pytorchjob")
    assert attempt.facts == {GPU_PERCENT: 55.0}, "the mean over both pods, for the table of operations"
    points, _ = read(job.directory / METRICS, Position(), 100)
    machine = [point for point in points if point.name.startswith("system/")]
    assert {point.name for point in machine} >= {
        "system/0/cpu_utilization_percentage",
        "system/1/job_memory_usage_megabytes",
    }
    points = [point for point in points if point not in machine]
    assert [(point.name, point.step) for point in points] == [("loss_0", 7), ("loss_1", 7)]
    assert points[0].value == 0.5 and math.isnan(points[1].value)
    assert dropped(job.directory / METRICS) == 1


@pytest.mark.parametrize(("scenario", "succeeds"), [(succeed, True), (master_fails, False)])
def test_a_full_disk_costs_the_log_and_neither_model_nor_truth(
    store: ArtifactStore, job: TrainingJob, scenario: Scenario, succeeds: bool
) -> None:
    (job.directory / LOG).symlink_to("/dev/full")
    if succeeds:
        run(scenario, store, job, "pytorchjob")
        assert (job.directory / WEIGHTS).read_bytes() == b"weights"
    else:
        first, rest = error_of(TrainingFailedError, scenario, store, job, "pytorchjob")
        assert "exit code 1" in first and "\nline 1" in rest


def test_the_log_of_a_pod_that_has_ended_is_not_asked_for_again(store: ArtifactStore, job: TrainingJob) -> None:
    def one_ends_early(cluster: Cluster, made: Object) -> None:
        early = cluster.add_pod(made, "worker-0")
        cluster.start(made, early)
        cluster.say(early, "done")
        cluster.end(made, early, 0)
        cluster.await_log("done")
        cluster.await_looks(3)
        succeed(cluster, made)

    cluster = run(one_ends_early, store, job, "pytorchjob")
    assert len([each for each in cluster.requests if each.endswith("worker-0/log")]) <= 3


def test_success_without_a_model_is_a_failure(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, _ = error_of(TrainingFailedError, end_without_a_model, store, job, kind)
    assert first.startswith("Training failed: the job reports success, but there is no result and weights")


@pytest.mark.parametrize("what", ["named", "altered", "missing"])
def test_success_with_a_model_that_does_not_verify_is_a_failure(
    store: ArtifactStore, job: TrainingJob, tmp_path: Path, what: str
) -> None:
    def send(cluster: Cluster, made: Object) -> None:
        folder = tmp_path / "pod"
        folder.mkdir()
        train(made, folder, named=b"others" if what == "named" else b"weights")
        (blob,) = (path for path in Path(store.address).glob("blobs/*/*") if path.read_bytes() == b"weights")
        if what != "named":
            blob.unlink()
        if what == "altered":
            blob.write_bytes(b"Weights")
        end_without_a_model(cluster, made)

    first, rest = error_of(TrainingFailedError, send, store, job, "pytorchjob")
    assert ("the weights have SHA-256" in first) == (what == "named")
    assert ("its result does not verify" in first) == (what != "named"), rest


def test_another_run_has_a_job_of_its_own(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubernetes(succeed) as cluster:
        for each in ("run-1", "run-2"):
            monkeypatch.setenv(RUN_ID, each)
            launcher_on(cluster, store, "pytorchjob").run(job)
        names = {made["metadata"]["name"] for made in cluster.created}
    assert len(names) == 2


def test_nodes_that_do_not_divide_the_processes_are_refused_before_anything_is_done(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    with kubernetes(succeed) as cluster:
        with pytest.raises(
            ConfigurationError, match=r"launch\.nodes=2: expected a divisor of training\.parallelism\.processes=1"
        ):
            launcher_on(cluster, store, kind, nodes=2).run(job)
        assert cluster.requests == []
