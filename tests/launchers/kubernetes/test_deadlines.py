"""Deadlines of a job that is found again: each wait is counted from when it began."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest

from gatehouse.launchers import launcher as ends
from gatehouse.launchers.kubernetes.watch import Deadlines
from gatehouse.launchers.launcher import SchedulingTimeoutError, TrainingJob, TrainingTimeoutError
from gatehouse.launchers.spec import PyTorchJobLaunch
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.conftest import Clock
from tests.launchers.kubernetes.scenarios import Scenario, error_of, run, succeed
from tests.stand_ins.kubernetes_api import Cluster
from tests.stand_ins.kubernetes_kinds import Object

LAUNCH = PyTorchJobLaunch(kind="pytorchjob", scheduling_minutes=30)
RUNNING = [{"metadata": {"name": "p"}, "status": {"phase": "Running"}}]


def _ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).isoformat()


@pytest.mark.parametrize(
    ("progress", "pods", "left"),
    [
        ({}, [], 20),  # It waits since it was created.
        ({}, RUNNING, 60),  # It began to run while no launcher looked.
        ({"ran": 2400, "since": _ago(5), "runs": False}, [], 25),
        ({"ran": 2400, "since": _ago(5), "runs": False}, RUNNING, 20),
        ({"ran": 2400, "since": _ago(5), "runs": True}, RUNNING, 15),
        ({"ran": 2400, "since": _ago(5), "runs": True}, [], 30),  # Its pods are gone: it waits anew.
        ({"ran": 2400, "since": _ago(21), "runs": True}, RUNNING, TrainingTimeoutError),
        ({"since": _ago(31), "runs": False}, [], SchedulingTimeoutError),
    ],
)
def test_a_launcher_that_finds_its_job_counts_from_what_the_one_before_recorded(
    progress: dict[str, Any], pods: list[dict[str, Any]], left: Any
) -> None:
    deadlines = Deadlines(LAUNCH, 1, 60, lambda pod: "", lambda: "")
    deadlines.resume(progress, _ago(10))
    if isinstance(left, type):
        with pytest.raises(left):
            deadlines.check(pods)
    else:
        assert deadlines.check(pods) == pytest.approx(left * 60, abs=30)


def test_time_in_a_queue_is_no_time_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    deadlines = Deadlines(LAUNCH, 1, 60, lambda pod: "", lambda: "", waiting_since=0.0)
    left = []
    for minute, pods in ((0, RUNNING), (50, []), (75, []), (75, RUNNING), (80, RUNNING)):
        now = minute * 60
        left.append(deadlines.check(pods) / 60)
    assert left == [60, 30, 5, 10, 5]
    now = 85 * 60
    with pytest.raises(TrainingTimeoutError):
        deadlines.check(RUNNING)


def _never_scheduled(clock: Clock, cluster: Cluster, job: Object) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    cluster.add_pod(job, conditions=[condition | {"message": said}])
    cluster.await_looks(1)
    clock.pass_minutes(31)


def test_a_job_that_no_node_takes_ends_with_what_the_scheduler_said(
    store: ArtifactStore, job: TrainingJob, kind: str, clock: Clock
) -> None:
    first, rest = error_of(ends.UnschedulableError, partial(_never_scheduled, clock), store, job, kind)
    assert first.startswith("Training could not be scheduled within launch.scheduling_minutes=30: no node")
    assert "5 Insufficient nvidia.com/gpu" in rest and "Insufficient" not in first


def _never_admitted(clock: Clock, cluster: Cluster, job: Object) -> None:
    warning = {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: team"}
    cluster.events.append(warning)
    cluster.await_looks(1)
    clock.pass_minutes(31)


def test_a_job_that_gets_no_pods_ends_with_what_the_cluster_said(
    store: ArtifactStore, job: TrainingJob, kind: str, clock: Clock
) -> None:
    first, rest = error_of(ends.SchedulingTimeoutError, partial(_never_admitted, clock), store, job, kind)
    assert first.startswith("Training did not start within")
    assert "FailedCreate: exceeded quota: team" in rest


def test_a_job_that_runs_too_long_is_stopped_and_waiting_does_not_count(
    store: ArtifactStore, job: TrainingJob, kind: str, clock: Clock
) -> None:
    ran: list[float] = []

    def runs_on(cluster: Cluster, made: Object) -> None:
        cluster.await_looks(1)
        clock.pass_minutes(25)  # In the queue.
        pod = cluster.add_pod(made)
        cluster.start(made, pod)
        cluster.say(pod, "epoch 1/1000000")
        cluster.await_log("epoch 1/1000000")
        cluster.await_looks(2)
        for minutes in (30, 28, 3):  # The job may run for 60 minutes.
            clock.pass_minutes(minutes)
            ran.append(minutes)
            cluster.touch(made)
            cluster.await_looks(2)

    first, rest = error_of(ends.TrainingTimeoutError, runs_on, store, job, kind)
    assert ran == [30, 28, 3]
    assert first.startswith("Training took longer than training.operation.timeout_minutes=60")
    assert rest.endswith("epoch 1/1000000")


def _image_problem(clock: Clock, reason: str, minutes: float) -> Scenario:
    def scenario(cluster: Cluster, job: Object) -> None:
        waiting = {"waiting": {"reason": reason, "message": "registry.example/none: not found"}}
        cluster.set_pod(job, cluster.add_pod(job), "Pending", waiting)
        cluster.await_looks(2)
        clock.pass_minutes(minutes)

    return scenario


@pytest.mark.parametrize(("reason", "minutes"), [("ImagePullBackOff", 6), ("InvalidImageName", 0)])
def test_an_image_that_cannot_be_pulled_ends_the_job(
    store: ArtifactStore, job: TrainingJob, kind: str, reason: str, minutes: float, clock: Clock
) -> None:
    first, rest = error_of(ends.ImagePullError, _image_problem(clock, reason, minutes), store, job, kind)
    assert first == "The image of the training job cannot be pulled."
    assert f"{reason}: registry.example/none: not found" in rest


def test_a_registry_that_is_slow_once_does_not_end_the_job(store: ArtifactStore, job: TrainingJob) -> None:
    def pulled_at_last(cluster: Cluster, made: Object) -> None:
        pod = cluster.add_pod(made)
        cluster.set_pod(made, pod, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "time-out"}})
        cluster.await_looks(2)
        del cluster.pods[pod["metadata"]["name"]]
        succeed(cluster, made)

    run(pulled_at_last, store, job, "pytorchjob")
