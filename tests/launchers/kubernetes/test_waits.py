"""How long a job on a cluster may wait and run: what ends it, and that the clock of one wait is not that of another."""

from functools import partial

import pytest

from gatehouse.launchers import launcher as ends
from gatehouse.launchers.launcher import TrainingJob
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.conftest import Clock
from tests.launchers.kubernetes.scenarios import Scenario, error_of, launcher_on, run, run_and_die, succeed
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object


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


def test_the_time_to_run_counts_from_when_the_job_began_not_from_when_it_was_found(
    store: ArtifactStore, job: TrainingJob
) -> None:
    def began_long_ago(cluster: Cluster, made: Object) -> None:
        running = {"running": {"startedAt": "2020-01-01T00:00:00Z"}}
        cluster.set_pod(made, cluster.add_pod(made), "Running", running)

    with kubernetes(began_long_ago) as cluster:
        run_and_die(store, job, cluster)
        with pytest.raises(ends.TrainingTimeoutError):
            launcher_on(cluster, store, "pytorchjob").run(job)
