"""How a job on a cluster may fail: each cause is an error of its own, with the last lines of the worker."""

import contextvars
import json
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from gatehouse.launchers import launcher as ends
from gatehouse.launchers.kubernetes.owned import OwnedJob
from gatehouse.launchers.kubernetes.transfer import report_failure
from gatehouse.launchers.launcher import RESULT, STOP, Stop, TrainingJob
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.conftest import Clock
from tests.launchers.kubernetes.scenarios import (
    Scenario,
    die,
    error_of,
    fail_again_and_again,
    launcher_on,
    once,
    run,
    succeed,
)
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object, container_of

BACKOFF = "launch.run_policy.backoff_limit"
EVICTION = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": "low on memory"}


def _program_fails(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    command = container_of(job)[1]["command"]
    report_failure(ArtifactStore.open(command[3]), command[4], "ValueError: no rows", repeats=True)
    cluster.end(job, pod, 1)
    cluster.conclude(job, succeeded=False)


def _hangs(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    command, message = container_of(job)[1]["command"], f"{ends.HUNG}\nStacks of rank 1:"
    report_failure(ArtifactStore.open(command[3]), command[4], message, outcome="hung")
    cluster.end(job, pod, 124)
    cluster.conclude(job, succeeded=False)


def _deleted(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/2")
    cluster.await_log("epoch 1/2")
    cluster.delete(next(iter(cluster.jobs)))


def _deadline_of_the_operator(cluster: Cluster, job: Object) -> None:
    message = "Job is failed because it was active longer than specified deadline"
    cluster.conclude(job, succeeded=False, reason="DeadlineExceeded", message=message)


@pytest.mark.parametrize(
    ("scenario", "error", "first", "rest"),
    [
        (_program_fails, ends.TrainingFailedError, "Training failed: ValueError: no rows", ""),
        (_hangs, ends.TrainingFailedError, ends.HUNG, "Stacks of rank 1:"),
        (fail_again_and_again(143), ends.EvictedError, ends.EVICTED, "received a SIGTERM"),
        (fail_again_and_again(137, "OOMKilled"), ends.TrainingFailedError, "ran out of memory", "epoch 1/2"),
        (fail_again_and_again(137, conditions=[EVICTION]), ends.EvictedError, ends.EVICTED, "Kubelet: low on memory"),
        (_deleted, ends.TrainingCancelledError, "its job was deleted while it ran", "epoch 1/2"),
        (_deadline_of_the_operator, ends.TrainingTimeoutError, "took longer than", ""),
    ],
)
def test_each_cause_is_an_error_of_its_own(
    store: ArtifactStore,
    job: TrainingJob,
    kind: str,
    scenario: Scenario,
    error: type[ends.LauncherError],
    first: str,
    rest: str,
) -> None:
    first_line, below = error_of(error, scenario, store, job, kind, **once(kind))
    assert first in first_line and rest in below


@pytest.mark.parametrize(("scenario", "repeats"), [(_program_fails, True), (_hangs, False)])
def test_only_the_program_says_that_every_attempt_would_fail_so(
    store: ArtifactStore, job: TrainingJob, scenario: Scenario, repeats: bool
) -> None:
    with pytest.raises(ends.TrainingFailedError) as caught:
        run(scenario, store, job, "pytorchjob")
    assert caught.value.repeats == repeats


def test_failures_before_the_launcher_began_count_too(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_again = threading.Event()

    def fail_twice(cluster: Cluster, made: Object) -> None:
        pod: Object | None = cluster.add_pod(made)
        for _ in range(2):
            assert pod is not None
            cluster.start(made, pod)
            cluster.await_looks(2)
            pod = cluster.fail(made, pod, 137, "OOMKilled")
            assert fail_again.wait(60)

    with kubernetes(fail_twice) as cluster:
        first = launcher_on(cluster, store, "pytorchjob", **once("pytorchjob"))  # type: ignore[arg-type]
        save_progress = OwnedJob.save_progress

        def die_when_saved(owned: OwnedJob, progress: str) -> None:
            save_progress(owned, progress)
            if json.loads(progress)["failures"]:
                die()

        first._api.cleaning_up = die  # type: ignore[method-assign]
        with monkeypatch.context() as patch:
            patch.setattr(OwnedJob, "save_progress", die_when_saved)
            with pytest.raises(KeyboardInterrupt):
                first.run(job)
        fail_again.set()
        with pytest.raises(ends.TrainingFailedError, match=r"master-0 failed 2 times"):
            launcher_on(cluster, store, "pytorchjob", **once("pytorchjob")).run(job)  # type: ignore[arg-type]


def test_the_failure_after_the_last_restart_ends_the_job_with_its_cause(store: ArtifactStore, job: TrainingJob) -> None:
    """The operator deletes a failed pod at once and makes another, for ever; a look shows none that has failed."""
    started: list[str] = []

    def run_out_of_memory(cluster: Cluster, made: Object) -> None:
        cluster.start(made, cluster.add_pod(made))
        pod: Object | None = cluster.add_pod(made, "worker-0")
        while pod is not None:
            started.append(pod["metadata"]["uid"])
            cluster.start(made, pod)
            cluster.say(pod, f"life {len(started)}")
            cluster.await_log(f"life {len(started)}")
            cluster.await_looks(2)
            pod = cluster.fail(made, pod, 137, "OOMKilled")

    limit: dict[str, object] = {"run_policy": {"backoff_limit": 2}, "nodes": 2}
    twice = replace(job, processes=2)
    first, rest = error_of(ends.TrainingFailedError, run_out_of_memory, store, twice, "pytorchjob", **limit)
    assert "OOMKilled" in first and len(started) in (3, 4)
    assert f"worker-0 failed 3 times, with {BACKOFF}=2" in rest and rest.endswith("life 3")


def test_pods_that_come_and_go_between_two_looks_count(store: ArtifactStore, job: TrainingJob) -> None:
    def fail_three_times_at_once(cluster: Cluster, made: Object) -> None:
        pod: Object | None = cluster.add_pod(made)
        cluster.await_looks(2)
        for _ in range(3):
            assert pod is not None
            pod = cluster.fail(made, pod, 137, "OOMKilled")

    with kubernetes(fail_three_times_at_once) as cluster, pytest.raises(ends.TrainingFailedError, match="3 times"):
        launcher_on(cluster, store, "pytorchjob", run_policy={"backoff_limit": 2}).run(job)


def _suspended_again_and_again(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    for _ in range(3):
        cluster.start(job, pod)
        cluster.await_looks(2)
        cluster.suspend(job, pod)
        pod = cluster.resume(job)
    cluster.await_looks(2)
    del cluster.pods[pod["metadata"]["name"]]
    succeed(cluster, job)


def _evicted_and_started_again(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/2")
    cluster.await_log("epoch 1/2")
    cluster.end(job, pod, 137)
    pod["status"] |= {"reason": "Evicted", "message": "The node was low on memory."}
    cluster.touch(job)
    cluster.await_looks(2)
    del cluster.pods[pod["metadata"]["name"]]
    succeed(cluster, job)


def _pulled_at_last(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.set_pod(job, pod, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "time-out"}})
    cluster.await_looks(2)
    del cluster.pods[pod["metadata"]["name"]]
    succeed(cluster, job)


@pytest.mark.parametrize("scenario", [_suspended_again_and_again, _evicted_and_started_again, _pulled_at_last])
def test_a_job_that_goes_on_has_not_failed(store: ArtifactStore, job: TrainingJob, scenario: Scenario) -> None:
    run(scenario, store, job, "pytorchjob", run_policy={"backoff_limit": 1})


def test_a_job_that_its_experiment_stops_is_deleted_at_once(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    stop = Stop()

    def stop_requested(cluster: Cluster, job: Object) -> None:
        pod = cluster.add_pod(job)
        cluster.start(job, pod)
        cluster.say(pod, "epoch 1/2")
        cluster.await_log("epoch 1/2")
        stop.ask()

    def begin() -> None:
        STOP.set(stop)
        for scenario in (stop_requested, succeed):  # The second does not begin.
            first, _ = error_of(ends.TrainingStoppedError, scenario, store, job, kind)
            assert first == str(ends.stopped())
        assert not (job.directory / RESULT).exists()

    contextvars.copy_context().run(begin)


def _never_scheduled(cluster: Cluster, job: Object, clock: Clock) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    cluster.add_pod(job, conditions=[condition | {"message": "5 Insufficient nvidia.com/gpu."}])
    cluster.await_looks(1)
    clock.pass_minutes(31)


def _never_admitted(cluster: Cluster, job: Object, clock: Clock) -> None:
    cluster.events.append({"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: team"})
    cluster.await_looks(1)
    clock.pass_minutes(31)


def _not_pulled(cluster: Cluster, job: Object, clock: Clock) -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "registry.example/none: not found"}}
    cluster.set_pod(job, cluster.add_pod(job), "Pending", waiting)
    cluster.await_looks(2)
    clock.pass_minutes(6)


def _misnamed_image(cluster: Cluster, job: Object, clock: Clock) -> None:
    cluster.set_pod(job, cluster.add_pod(job), "Pending", {"waiting": {"reason": "InvalidImageName"}})


def _runs_on(cluster: Cluster, job: Object, clock: Clock) -> None:
    cluster.await_looks(1)
    clock.pass_minutes(25)  # In the queue, which does not count.
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/1000000")
    cluster.await_log("epoch 1/1000000")
    cluster.await_looks(2)
    clock.pass_minutes(58)
    cluster.await_looks(2)
    assert cluster.jobs, "it was stopped before its 60 minutes"
    clock.pass_minutes(3)


@pytest.mark.parametrize(
    ("scenario", "error", "first", "rest"),
    [
        (_never_scheduled, ends.UnschedulableError, "launch.scheduling_minutes=30: no node", "5 Insufficient nvidia"),
        (_never_admitted, ends.SchedulingTimeoutError, "did not start within", "FailedCreate: exceeded quota: team"),
        (_not_pulled, ends.ImagePullError, "cannot be pulled", "ImagePullBackOff: registry.example/none: not found"),
        (_misnamed_image, ends.ImagePullError, "cannot be pulled", "InvalidImageName"),
        (_runs_on, ends.TrainingTimeoutError, "timeout_minutes=60", "epoch 1/1000000"),
    ],
)
def test_each_deadline_is_an_error_of_its_own(
    store: ArtifactStore,
    job: TrainingJob,
    kind: str,
    clock: Clock,
    scenario: Callable[[Cluster, Object, Clock], None],
    error: type[ends.LauncherError],
    first: str,
    rest: str,
) -> None:
    def with_clock(cluster: Cluster, made: Object) -> None:
        scenario(cluster, made, clock)

    first_line, below = error_of(error, with_clock, store, job, kind)
    assert first in first_line and rest in below
