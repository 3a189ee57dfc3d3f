"""What comes back from a job on a cluster: model, log and metrics, each verified, and nothing is left there."""

import json
import math
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from gatehouse.errors import ConfigurationError
from gatehouse.launchers.kubernetes.pod import sending_metrics
from gatehouse.launchers.launcher import (
    LOCATION,
    LOG,
    METRICS,
    RESULT,
    WEIGHTS,
    TrainingFailedError,
    TrainingJob,
)
from gatehouse.launchers.wrapper import COMMAND
from gatehouse.store.run import Attempt
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.machine import GPU_PERCENT, Machine
from gatehouse.tracking.metrics_file import MetricsFile, read_points
from tests.launchers.kubernetes.scenarios import Scenario, error_of, launcher_on, master_fails, run, succeed, train
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
            path = tmp_path / f"pod-{number}"
            monkeypatch.setenv("PET_NODE_RANK", str(number))
            busy = {"system/gpu_0_utilization_percentage": 40.0 + 30 * number}
            monkeypatch.setattr(Machine, "gpus", lambda machine, busy=busy: busy)
            with sending_metrics(ArtifactStore.open(address), folder, path), closing(MetricsFile(path)) as metrics:
                metrics.log({f"loss_{number}": loss}, 7)
        master_fails(cluster, made)

    with attempt.as_task():
        error_of(TrainingFailedError, log_and_fail, store, job, "pytorchjob")
    assert attempt.facts == {GPU_PERCENT: 55.0}, "the mean over both pods, for the table of operations"
    points, _ = read_points(job.directory / METRICS)
    machine = {point.name for point in points if point.name.startswith("system/")}
    assert machine >= {"system/0/cpu_utilization_percentage", "system/1/job_memory_usage_megabytes"}
    points = [point for point in points if point.name not in machine]
    assert [(point.name, point.step) for point in points] == [("loss_0", 7), ("loss_1", 7)]
    assert points[0].value == 0.5 and math.isnan(points[1].value)


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


@pytest.mark.parametrize(
    ("what", "problem"),
    [
        ("no model", "there is no result and weights"),
        ("others named", "the weights have SHA-256"),
        ("altered", "its result does not verify"),
        ("missing", "its result does not verify"),
    ],
)
def test_success_without_a_model_that_verifies_is_a_failure(
    store: ArtifactStore, job: TrainingJob, kind: str, tmp_path: Path, what: str, problem: str
) -> None:
    def end(cluster: Cluster, made: Object) -> None:
        if what != "no model":
            folder = tmp_path / "pod"
            folder.mkdir()
            train(made, folder, named=b"others" if what == "others named" else b"weights")
            (blob,) = (path for path in Path(store.address).glob("blobs/*/*") if path.read_bytes() == b"weights")
            if what in ("altered", "missing"):
                blob.unlink()
            if what == "altered":
                blob.write_bytes(b"Weights")
        cluster.end(made, cluster.add_pod(made), 0)
        cluster.conclude(made, succeeded=True)

    first, _ = error_of(TrainingFailedError, end, store, job, kind)
    assert first.startswith("Training failed:") and problem in first


def test_a_script_that_ends_well_on_the_nodes_that_are_left_has_succeeded(
    store: ArtifactStore, job: TrainingJob, kind: str, tmp_path: Path
) -> None:
    def lose_one(cluster: Cluster, made: Object) -> None:
        pods = [cluster.add_pod(made, f"node-{number}") for number in range(3)]
        for pod in pods:
            cluster.start(made, pod)
        cluster.await_looks(2)
        cluster.end(made, pods[2], 143)
        if made["kind"] == "PyTorchJob":
            cluster.replace(made, pods[2])
        else:
            del cluster.pods[pods[2]["metadata"]["name"]]
            cluster.add_pod(made, "node-2")
        cluster.await_looks(2)  # It waits for a node, and the operator for it.
        (tmp_path / "pod").mkdir()
        train(made, tmp_path / "pod")
        for pod in pods[:2]:
            cluster.end(made, pod, 0)

    script = replace(job, program=COMMAND, processes=3)
    run(lose_one, store, script, kind, nodes=3, min_nodes=2)
    assert (job.directory / WEIGHTS).read_bytes() == b"weights"
    restarts = json.loads((job.directory / LOCATION).read_text())["restarts"]
    assert any("node-2: " in line["event"] and "143" in line["event"] for line in restarts)


def test_a_training_keeps_its_number_of_nodes(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    with kubernetes(succeed) as cluster, pytest.raises(ConfigurationError, match=r"launch\.min_nodes=1: expected 0"):
        launcher_on(cluster, store, kind, nodes=2, min_nodes=1).run(job)


def test_nodes_that_do_not_divide_the_processes_are_refused_before_anything_is_done(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    with kubernetes(succeed) as cluster:
        with pytest.raises(
            ConfigurationError, match=r"launch\.nodes=2: expected a divisor of training\.parallelism\.processes=1"
        ):
            launcher_on(cluster, store, kind, nodes=2).run(job)
        assert cluster.requests == []
