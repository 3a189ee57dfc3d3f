"""How a job on a cluster may fail: each cause is an error of its own, with the last lines of the worker."""

import contextvars
import json
import threading
from dataclasses import replace

import pytest

from gatehouse.launchers import launcher as ends
from gatehouse.launchers.kubernetes.ownership import OwnedJob
from gatehouse.launchers.kubernetes.transfer import report_failure
from gatehouse.launchers.launcher import LOG, RESULT, STOP, Stop, TrainingJob
from gatehouse.store.store import ArtifactStore
from tests.launchers.kubernetes.scenarios import (
    die,
    error_of,
    fail_again_and_again,
    launcher_on,
    master_fails,
    once,
    run,
    succeed,
)
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object, container_of

BACKOFF = "launch.run_policy.backoff_limit"


def test_a_failed_job_says_how_its_first_pod_ended_with_the_end_of_its_log(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    first, rest = error_of(ends.TrainingFailedError, master_fails, store, job, kind)
    assert first == "Training failed: a pod ended with exit code 1, expected 0."
    assert "JobFailed: it failed 1 times" in rest
    assert rest.splitlines()[-20:] == [f"line {number}" for number in range(10, 30)]


def _program_fails(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    command = container_of(job)[1]["command"]
    report_failure(ArtifactStore.open(command[3]), command[4], "ValueError: no rows", repeats=True)
    cluster.end(job, pod, 1)
    cluster.conclude(job, succeeded=False)


def test_an_error_of_the_program_is_the_cause(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, _ = error_of(ends.TrainingFailedError, _program_fails, store, job, kind)
    assert first == "Training failed: ValueError: no rows"


def test_a_job_that_is_told_to_end_too_often_was_preempted(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, rest = error_of(ends.EvictedError, fail_again_and_again(143), store, job, kind, **once(kind))
    assert first == ends.EVICTED
    assert "received a SIGTERM" in rest and "resume at its last checkpoint" in rest


def _hangs(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.end(job, pod, 124)
    cluster.conclude(job, succeeded=False)


@pytest.mark.parametrize("repeats", [True, False])
def test_only_the_program_says_that_every_attempt_would_fail_so(
    store: ArtifactStore, job: TrainingJob, repeats: bool
) -> None:
    with pytest.raises(ends.TrainingFailedError) as caught:
        run(_program_fails if repeats else _hangs, store, job, "pytorchjob")
    assert caught.value.repeats == repeats and (ends.HUNG in str(caught.value)) != repeats


def test_a_pod_that_runs_out_of_memory_too_often_is_told_so(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    out_of_memory = fail_again_and_again(137, "OOMKilled")
    first, rest = error_of(ends.TrainingFailedError, out_of_memory, store, job, kind, **once(kind))
    assert "ran out of memory" in first
    assert (f"failed 2 times, with {BACKOFF}=1" in rest) == (kind == "pytorchjob")


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


@pytest.mark.parametrize("watched", [True, False])
def test_pods_that_come_and_go_between_two_looks_count_where_pods_may_be_watched(
    store: ArtifactStore, job: TrainingJob, watched: bool
) -> None:
    def fail_three_times_at_once(cluster: Cluster, made: Object) -> None:
        pod: Object | None = cluster.add_pod(made)
        cluster.await_looks(2)
        for _ in range(3):
            assert pod is not None
            pod = cluster.fail(made, pod, 137, "OOMKilled")
        assert pod is not None
        cluster.start(made, pod)
        cluster.await_looks(3)
        del cluster.pods[pod["metadata"]["name"]]
        if cluster.jobs:
            succeed(cluster, made)

    with kubernetes(fail_three_times_at_once) as cluster:
        cluster.log = job.directory / LOG
        if not watched:
            cluster.forbidden.add(("", "pods", "watch"))
        launcher = launcher_on(cluster, store, "pytorchjob", run_policy={"backoff_limit": 2})
        if watched:
            with pytest.raises(ends.TrainingFailedError, match="failed 3 times"):
                launcher.run(job)
        else:
            launcher.run(job)


def test_a_job_that_is_suspended_again_and_again_uses_no_restart(store: ArtifactStore, job: TrainingJob) -> None:
    def preempted_and_resumed(cluster: Cluster, made: Object) -> None:
        pod = cluster.add_pod(made)
        for _ in range(3):
            cluster.start(made, pod)
            cluster.await_looks(2)
            cluster.suspend(made, pod)
            pod = cluster.resume(made)
        cluster.await_looks(2)
        del cluster.pods[pod["metadata"]["name"]]
        if cluster.jobs:
            succeed(cluster, made)

    run(preempted_and_resumed, store, job, "pytorchjob", run_policy={"backoff_limit": 1})


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


def test_a_pod_that_is_evicted_and_starts_again_is_no_failure(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    run(_evicted_and_started_again, store, job, kind)
    assert (job.directory / LOG).read_text() == "epoch 1/2\nepoch 1/1\n"


def test_a_job_that_ends_by_eviction_says_so(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    evicted = fail_again_and_again(137, conditions=[condition | {"message": "The node was low on memory."}])
    first, rest = error_of(ends.EvictedError, evicted, store, job, kind, **once(kind))
    assert first == ends.EVICTED
    assert "TerminationByKubelet: The node was low on memory." in rest and rest.endswith("epoch 1/2")


def _deleted(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/2")
    cluster.await_log("epoch 1/2")
    cluster.delete(next(iter(cluster.jobs)))


def test_a_job_that_somebody_deletes_was_cancelled(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, rest = error_of(ends.TrainingCancelledError, _deleted, store, job, kind)
    assert first == "Training was cancelled: its job was deleted while it ran."
    assert rest.endswith("epoch 1/2")


def test_a_job_that_its_experiment_stops_is_deleted_at_once(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    stop = Stop()

    def asked(cluster: Cluster, job: Object) -> None:
        pod = cluster.add_pod(job)
        cluster.start(job, pod)
        cluster.say(pod, "epoch 1/2")
        cluster.await_log("epoch 1/2")
        stop.ask()

    def begin() -> None:
        STOP.set(stop)
        for scenario in (asked, succeed):  # The second does not begin.
            first, _ = error_of(ends.TrainingStoppedError, scenario, store, job, kind)
            assert first == str(ends.stopped())
        assert not (job.directory / RESULT).exists()

    contextvars.copy_context().run(begin)


def _deadline_of_the_operator(cluster: Cluster, job: Object) -> None:
    message = "Job is failed because it was active longer than specified deadline"
    cluster.conclude(job, succeeded=False, reason="DeadlineExceeded", message=message)


def test_the_deadline_of_the_operator_is_a_timeout_too(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    error_of(ends.TrainingTimeoutError, _deadline_of_the_operator, store, job, kind)
