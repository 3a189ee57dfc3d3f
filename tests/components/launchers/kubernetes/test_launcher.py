"""The cluster launcher against scripted clusters: each way a job can end, and what the API does meanwhile."""

import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from gatehouse.components.artifacts.run import RUN_ID
from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.launchers import launcher as ends
from gatehouse.components.launchers.kubernetes.api import KubernetesApi
from gatehouse.components.launchers.kubernetes.launcher import ClusterLauncher
from gatehouse.components.launchers.kubernetes.ownership import OwnedJob
from gatehouse.components.launchers.kubernetes.pod_metrics import sending_metrics
from gatehouse.components.launchers.kubernetes.pytorchjob import PyTorchJobs
from gatehouse.components.launchers.kubernetes.trainjob import TrainJobs
from gatehouse.components.launchers.kubernetes.transfer import report_failure
from gatehouse.components.launchers.launcher import LOG, METRICS, PLACE, RESULT, WEIGHTS, TrainingJob
from gatehouse.components.launchers.spec import PyTorchJobLaunch, TrainJobLaunch
from gatehouse.components.tracking.spool import Position, SpoolWriter, dropped, read
from gatehouse.errors import ConfigurationError, LauncherError
from tests.components.launchers.kubernetes.conftest import TIMEOUTS, succeed, train
from tests.kubernetes_api import Cluster, Object, container_of, kubernetes

ROLE = Path(__file__).parents[4] / "docs" / "launcher-role.yaml"
BACKOFF = "launch.run_policy.backoff_limit"
MOMENT = 0.3 / 60
"""A deadline in minutes that a test can wait for."""
Scenario = Callable[[Cluster, Object], None]


@pytest.fixture(params=["pytorchjob", "trainjob"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _launcher(cluster: Cluster, store: ArtifactStore, kind: str, **settings: object) -> ClusterLauncher:
    config = cluster.kubeconfig(Path(store.address).parent)
    api = KubernetesApi(TIMEOUTS, config)
    if kind == "pytorchjob":
        launch = PyTorchJobLaunch.model_validate({"kind": kind} | settings)
        return ClusterLauncher(store, PyTorchJobs(launch), launch, api=api)
    other = TrainJobLaunch.model_validate({"kind": kind} | settings)
    return ClusterLauncher(store, TrainJobs(other), other, api=api)


def _run(scenario: Scenario, store: ArtifactStore, job: TrainingJob, kind: str, **settings: object) -> Cluster:
    with kubernetes(scenario) as cluster:
        try:
            _launcher(cluster, store, kind, **settings).run(job)
        finally:
            assert cluster.jobs == {}, "the job is left behind"
        return cluster


def _fails(
    error: type[LauncherError],
    scenario: Scenario,
    store: ArtifactStore,
    job: TrainingJob,
    kind: str,
    **settings: object,
) -> tuple[str, str]:
    """First line and rest of the error in which the scenario ends."""
    with pytest.raises(LauncherError) as caught:
        _run(scenario, store, job, kind, **settings)
    assert type(caught.value) is error, caught.value
    first, _, rest = str(caught.value).partition("\n")
    return first, rest


def test_result_weights_and_log_come_back_and_the_job_is_removed(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    cluster = _run(succeed, store, job, kind)
    assert (job.directory / WEIGHTS).read_bytes() == b"weights"
    assert "weights_sha256" in json.loads((job.directory / RESULT).read_text())
    assert (job.directory / LOG).read_text() == "epoch 1/1\n"
    assert len(cluster.created) == 1


def test_what_the_job_is_stands_in_the_store_before_the_job_exists(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    seen: list[object] = []

    def look(cluster: Cluster, made: Object) -> None:
        (key,) = store.objects.list(f"jobs/{made['metadata']['name']}")
        seen.append(json.loads(store.objects.get_bytes(key))["about"])
        succeed(cluster, made)

    cluster = _run(look, store, job, kind)
    (made,) = cluster.created
    assert seen == [{"kind": made["kind"], "namespace": "ml", "name": made["metadata"]["name"]}]


def _master_fails(cluster: Cluster, job: Object) -> None:
    first, second = cluster.add_pod(job), cluster.add_pod(job, "worker-0")
    for pod in (first, second):
        cluster.start(job, pod)
    for line in range(30):
        cluster.say(first, f"line {line}")
    cluster.say(second, "terminated by its peer")
    cluster.end(job, first, 1)
    time.sleep(1.1)  # The API tells times in seconds.
    cluster.end(job, second, 143)
    cluster.conclude(job, succeeded=False, reason="JobFailed", message="it failed 1 times")


def test_a_failed_job_says_how_its_first_pod_ended_with_the_end_of_its_log(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    first, rest = _fails(ends.TrainingFailedError, _master_fails, store, job, kind)
    assert first == "Training failed: a pod ended with exit code 1, expected 0."
    assert "JobFailed: it failed 1 times" in rest
    assert rest.splitlines()[-20:] == [f"line {number}" for number in range(10, 30)]


def _program_fails(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    command = container_of(job)[1]["command"]
    report_failure(ArtifactStore.open(command[3]), command[4], "ValueError: no rows")
    cluster.end(job, pod, 1)
    cluster.conclude(job, succeeded=False)


def test_an_error_of_the_program_is_the_cause(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, _ = _fails(ends.TrainingFailedError, _program_fails, store, job, kind)
    assert first == "Training failed: ValueError: no rows"


def _again_and_again(code: int, reason: str = "", **status: object) -> Scenario:
    """Pods that fail in the same way as often as the operator starts them."""

    def scenario(cluster: Cluster, job: Object) -> None:
        pod: Object | None = cluster.add_pod(job)
        while pod is not None:
            cluster.start(job, pod)
            cluster.say(pod, "epoch 1/2")
            cluster.await_reader(pod)
            pod = cluster.fail(job, pod, code, reason, **status)

    return scenario


def _once(kind: str) -> dict[str, object]:
    """Settings with which a pod may start again once, where the launcher counts that."""
    return {"run_policy": {"backoff_limit": 1}} if kind == "pytorchjob" else {}


def test_a_job_that_is_told_to_end_too_often_was_preempted(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, rest = _fails(ends.EvictedError, _again_and_again(143), store, job, kind, **_once(kind))
    assert first == ends.EVICTED
    assert "was told to end by a SIGTERM" in rest and "goes on at its last checkpoint" in rest


def _hangs(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.end(job, pod, 124)
    cluster.conclude(job, succeeded=False)


def test_a_job_that_hangs_is_told_so(store: ArtifactStore, job: TrainingJob) -> None:
    first, _ = _fails(ends.TrainingFailedError, _hangs, store, job, "pytorchjob")
    assert first == f"Training failed: {ends.HUNG}"


def test_metrics_of_all_pods_arrive_also_of_a_job_that_fails(
    store: ArtifactStore, job: TrainingJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PET_NNODES", "2")

    def log_and_fail(cluster: Cluster, made: Object) -> None:
        address, folder, _ = container_of(made)[1]["command"][3:6]
        for number, loss in enumerate((0.5, float("nan"))):
            spool = tmp_path / f"pod-{number}"
            monkeypatch.setenv("PET_NODE_RANK", str(number))
            with sending_metrics(ArtifactStore.open(address), folder, spool):
                writer = SpoolWriter(spool)
                writer.log({f"loss_{number}": loss}, 7)
                writer.drop(number)
                writer.close()
        _master_fails(cluster, made)

    _fails(ends.TrainingFailedError, log_and_fail, store, job, "pytorchjob")
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


def test_a_pod_that_runs_out_of_memory_too_often_is_told_so(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    out_of_memory = _again_and_again(137, "OOMKilled")
    first, rest = _fails(ends.TrainingFailedError, out_of_memory, store, job, kind, **_once(kind))
    assert "ran out of memory" in first
    assert (f"failed 2 times, with {BACKOFF}=1" in rest) == (kind == "pytorchjob")


def test_what_a_pod_failed_before_its_launcher_began_counts_too(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_again = threading.Event()

    def fail_twice(cluster: Cluster, made: Object) -> None:
        pod: Object | None = cluster.add_pod(made)
        for _ in range(2):
            assert pod is not None
            cluster.start(made, pod)
            pod = cluster.fail(made, pod, 137, "OOMKilled")
            assert fail_again.wait(10)

    with kubernetes(fail_twice) as cluster:
        first = _launcher(cluster, store, "pytorchjob", **_once("pytorchjob"))
        save_progress = OwnedJob.save_progress

        def die_when_told(owned: OwnedJob, progress: str) -> None:
            save_progress(owned, progress)
            if "master-0" in progress:
                _die()

        first._api.cleaning_up = _die  # type: ignore[method-assign]
        with monkeypatch.context() as patch:
            patch.setattr(OwnedJob, "save_progress", die_when_told)
            with pytest.raises(KeyboardInterrupt):
                first.run(job)
        fail_again.set()
        with pytest.raises(ends.TrainingFailedError, match=r"master-0 failed 2 times"):
            _launcher(cluster, store, "pytorchjob", **_once("pytorchjob")).run(job)


@pytest.mark.parametrize(("scenario", "succeeds"), [(succeed, True), (_master_fails, False)])
def test_a_full_disk_costs_the_log_and_neither_model_nor_truth(
    store: ArtifactStore, job: TrainingJob, scenario: Scenario, succeeds: bool
) -> None:
    (job.directory / LOG).symlink_to("/dev/full")
    if succeeds:
        _run(scenario, store, job, "pytorchjob")
        assert (job.directory / WEIGHTS).read_bytes() == b"weights"
    else:
        first, rest = _fails(ends.TrainingFailedError, scenario, store, job, "pytorchjob")
        assert "exit code 1" in first and rest.endswith("line 29")


def _nothing_made(cluster: Cluster, job: Object) -> None:
    cluster.end(job, cluster.add_pod(job), 0)
    cluster.conclude(job, succeeded=True)


def test_success_without_a_model_is_a_failure(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, _ = _fails(ends.TrainingFailedError, _nothing_made, store, job, kind)
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
        _nothing_made(cluster, made)

    first, rest = _fails(ends.TrainingFailedError, send, store, job, "pytorchjob")
    assert ("the weights have SHA-256" in first) == (what == "named")
    assert ("its result does not verify" in first) == (what != "named"), rest


def _never_scheduled(cluster: Cluster, job: Object) -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    said = "0/5 nodes are available: 5 Insufficient nvidia.com/gpu."
    cluster.add_pod(job, conditions=[condition | {"message": said}])


def test_a_job_that_no_node_takes_ends_with_what_the_scheduler_said(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    first, rest = _fails(ends.UnschedulableError, _never_scheduled, store, job, kind, scheduling_minutes=MOMENT)
    assert first.startswith("Training could not be scheduled within launch.scheduling_minutes=")
    assert "5 Insufficient nvidia.com/gpu" in rest and "Insufficient" not in first


def _never_admitted(cluster: Cluster, job: Object) -> None:
    warning = {"type": "Warning", "reason": "FailedCreate", "message": "exceeded quota: team"}
    cluster.events.append(warning)


def test_a_job_that_gets_no_pods_ends_with_what_the_cluster_said(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    first, rest = _fails(ends.SchedulingTimeoutError, _never_admitted, store, job, kind, scheduling_minutes=MOMENT)
    assert first.startswith("Training did not start within")
    assert "FailedCreate: exceeded quota: team" in rest


def _runs_on(cluster: Cluster, job: Object) -> None:
    time.sleep(0.4)
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/1000000")


def test_a_job_that_runs_too_long_is_stopped_and_waiting_does_not_count(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    short = replace(job, timeout_minutes=MOMENT)
    began = time.monotonic()
    first, rest = _fails(ends.TrainingTimeoutError, _runs_on, store, short, kind, scheduling_minutes=1)
    assert time.monotonic() - began > 0.7
    assert first.startswith("Training took longer than training.timeout_minutes=")
    assert rest.endswith("epoch 1/1000000")


def _image_problem(reason: str) -> Scenario:
    def scenario(cluster: Cluster, job: Object) -> None:
        waiting = {"waiting": {"reason": reason, "message": "registry.example/none: not found"}}
        cluster.set_pod(job, cluster.add_pod(job), "Pending", waiting)

    return scenario


@pytest.mark.parametrize(("reason", "minutes"), [("ImagePullBackOff", MOMENT), ("InvalidImageName", 5)])
def test_an_image_that_cannot_be_pulled_ends_the_job(
    store: ArtifactStore, job: TrainingJob, kind: str, reason: str, minutes: float
) -> None:
    first, rest = _fails(ends.ImagePullError, _image_problem(reason), store, job, kind, image_pull_minutes=minutes)
    assert first == "The image of the training job cannot be pulled."
    assert f"{reason}: registry.example/none: not found" in rest


def _pulled_at_last(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.set_pod(job, pod, "Pending", {"waiting": {"reason": "ErrImagePull", "message": "time-out"}})
    time.sleep(0.2)
    del cluster.pods[pod["metadata"]["name"]]
    succeed(cluster, job)


def test_a_registry_that_is_slow_once_does_not_end_the_job(store: ArtifactStore, job: TrainingJob) -> None:
    _run(_pulled_at_last, store, job, "pytorchjob")


def _evict(cluster: Cluster, job: Object) -> Object:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/2")
    cluster.await_reader(pod)
    cluster.end(job, pod, 137)
    pod["status"] |= {"reason": "Evicted", "message": "The node was low on memory."}
    cluster.touch(job)
    return pod


def _evicted_and_started_again(cluster: Cluster, job: Object) -> None:
    pod = _evict(cluster, job)
    time.sleep(0.1)
    del cluster.pods[pod["metadata"]["name"]]
    succeed(cluster, job)


def test_a_pod_that_is_evicted_and_starts_again_is_no_failure(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    _run(_evicted_and_started_again, store, job, kind)
    assert (job.directory / LOG).read_text() == "epoch 1/2\nepoch 1/1\n"


def test_a_job_that_ends_by_eviction_says_so(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    evicted = _again_and_again(137, conditions=[condition | {"message": "The node was low on memory."}])
    first, rest = _fails(ends.EvictedError, evicted, store, job, kind, **_once(kind))
    assert first == ends.EVICTED
    assert "TerminationByKubelet: The node was low on memory." in rest and rest.endswith("epoch 1/2")


def _deleted(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/2")
    cluster.await_reader(pod)
    cluster.delete(next(iter(cluster.jobs)))


def test_a_job_that_somebody_deletes_was_cancelled(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    first, rest = _fails(ends.TrainingCancelledError, _deleted, store, job, kind)
    assert first == "Training was cancelled: its job was deleted while it ran."
    assert rest.endswith("epoch 1/2")


def _deleted_by_the_operator(cluster: Cluster, job: Object) -> None:
    message = "Job is failed because it was active longer than specified deadline"
    cluster.conclude(job, succeeded=False, reason="DeadlineExceeded", message=message)


def test_the_deadline_of_the_operator_is_a_timeout_too(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    _fails(ends.TrainingTimeoutError, _deleted_by_the_operator, store, job, kind)


FLAPPING: list[int | str | None] = [429, 500, "reset", 401, None, 503, 504, "reset", None, "gone", 429, None, "close"]


def test_an_api_that_flaps_does_not_harm_the_job(store: ArtifactStore, job: TrainingJob, kind: str) -> None:
    with kubernetes(succeed) as cluster:
        cluster.faults.extend(FLAPPING)
        _launcher(cluster, store, kind).run(job)
        assert cluster.jobs == {}
        assert len(cluster.created) == 1
    assert (job.directory / LOG).read_text() == "epoch 1/1\n"


def test_an_answer_that_is_lost_does_not_create_a_second_job(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        launcher = _launcher(cluster, store, "pytorchjob")
        send, answers = launcher._api._send, iter([ConnectionResetError("after the request was served")])

        def lose(method: str, path: str, **arguments: object) -> object:
            answer = send(method, path, **arguments)
            if method == "POST" and (lost := next(answers, None)):
                raise lost
            return answer

        launcher._api._send = lose  # type: ignore[method-assign]
        launcher.run(job)
        assert len(cluster.created) == 1


def test_a_token_that_expires_is_read_again(store: ArtifactStore, job: TrainingJob) -> None:
    def renew(cluster: Cluster, made: Object) -> None:
        cluster.token = "another"
        time.sleep(0.05)
        cluster.kubeconfig(Path(store.address).parent)
        succeed(cluster, made)

    _run(renew, store, job, "pytorchjob")


def test_an_api_that_stays_away_ends_in_an_error_that_says_so(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        launcher = _launcher(cluster, store, "pytorchjob")
        cluster.faults.extend([503] * 2000)
        with pytest.raises(ends.ClusterError, match="does not answer, or answers with errors only") as caught:
            launcher.run(job)
        assert "HTTP 503" in str(caught.value)


@pytest.mark.parametrize("status", [403, 422])
def test_a_request_that_is_refused_is_not_repeated(store: ArtifactStore, job: TrainingJob, status: int) -> None:
    with kubernetes(succeed) as cluster:
        cluster.faults.extend([None, status])
        with pytest.raises(ends.ClusterError, match=f"with HTTP {status}: a scripted fault"):
            _launcher(cluster, store, "pytorchjob").run(job)
        assert len([each for each in cluster.requests if each.startswith("POST")]) == 1


def test_an_operator_that_is_not_installed_is_named(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        cluster.faults.extend([None, 404])
        with pytest.raises(ends.ClusterError, match="knows no PyTorchJob here: its operator is not installed"):
            _launcher(cluster, store, "pytorchjob").run(job)


def test_waiting_for_the_end_asks_seldom(store: ArtifactStore, job: TrainingJob) -> None:
    def slow(cluster: Cluster, made: Object) -> None:
        time.sleep(1)
        succeed(cluster, made)

    cluster = _run(slow, store, job, "pytorchjob")
    looks = [each for each in cluster.requests if each.endswith("/pods")]
    assert len(looks) < 25, "it polls instead of watching"


def _killed_launcher(store: ArtifactStore, job: TrainingJob, cluster: Cluster, kind: str = "pytorchjob") -> None:
    """A launcher that is killed as soon as it watches its job: nothing is cleaned up."""
    launcher = _launcher(cluster, store, kind)
    launcher._api.wait_for_change = _die  # type: ignore[method-assign]
    launcher._api.cleaning_up = _die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        launcher.run(job)


def _die(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_launcher_that_starts_again_finds_its_job(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def wait(cluster: Cluster, made: Object) -> None:
        go_on.wait(10)
        succeed(cluster, made)

    monkeypatch.setenv(RUN_ID, "run-1")
    with kubernetes(wait) as cluster:
        _killed_launcher(store, job, cluster)
        assert len(cluster.jobs) == 1
        threading.Timer(0.2, go_on.set).start()
        _launcher(cluster, store, "pytorchjob").run(job)
        assert len(cluster.created) == 1
        assert cluster.jobs == {}


def test_a_run_that_is_published_leaves_the_checkpoints_of_another_run_of_the_same_job_that_goes_on(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checkpoints() -> list[str]:
        return list(store.objects.list("scratch/checkpoints"))

    with kubernetes(succeed) as cluster:
        monkeypatch.setenv(RUN_ID, "run-1")
        first = _launcher(cluster, store, "pytorchjob")
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
        second = _launcher(cluster, store, "pytorchjob")
        second.run(job)
        assert len(kept) == 1
        second.forget(job)
        assert checkpoints() == []


def test_a_result_whose_launcher_was_killed_before_it_was_published_is_not_trained_again(
    store: ArtifactStore, job: TrainingJob
) -> None:
    with kubernetes(succeed) as cluster:
        _launcher(cluster, store, "pytorchjob", nodes=1, machine="a3").run(job)
        (job.directory / WEIGHTS).unlink()
        again = _launcher(cluster, store, "pytorchjob", machine="a3")
        again.run(job)
        assert len(cluster.created) == 1
        assert (job.directory / WEIGHTS).read_bytes() == b"weights"
        place = json.loads((job.directory / PLACE).read_text())
        assert (place["machine"], place["machines"]) == ("a3", 1) and "gatehouse.hardware" in place["environment"]
        again.forget(job)
        _launcher(cluster, store, "pytorchjob", machine="a3").run(job)
        assert len(cluster.created) == 2, "a model that is published is trained again where that is asked for"


def test_a_launch_whose_result_is_gone_is_trained_again(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(succeed) as cluster:
        _launcher(cluster, store, "pytorchjob").run(job)
        (blob,) = (path for path in Path(store.address).glob("blobs/*/*") if path.read_bytes() == b"weights")
        blob.unlink()
        _launcher(cluster, store, "pytorchjob").run(job)
        assert len(cluster.created) == 2


def test_the_log_of_a_pod_that_has_ended_is_not_asked_for_again(store: ArtifactStore, job: TrainingJob) -> None:
    def one_ends_early(cluster: Cluster, made: Object) -> None:
        early = cluster.add_pod(made, "worker-0")
        cluster.start(made, early)
        cluster.say(early, "done")
        cluster.end(made, early, 0)
        time.sleep(0.5)
        succeed(cluster, made)

    cluster = _run(one_ends_early, store, job, "pytorchjob")
    assert "done\n" in (job.directory / LOG).read_text()
    assert len([each for each in cluster.requests if each.endswith("worker-0/log")]) <= 3


def test_another_run_has_a_job_of_its_own(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kubernetes(succeed) as cluster:
        for run in ("run-1", "run-2"):
            monkeypatch.setenv(RUN_ID, run)
            _launcher(cluster, store, "pytorchjob").run(job)
        names = {made["metadata"]["name"] for made in cluster.created}
    assert len(names) == 2


def test_the_time_to_run_counts_from_when_the_job_began_not_from_when_it_was_found(
    store: ArtifactStore, job: TrainingJob
) -> None:
    def began_long_ago(cluster: Cluster, made: Object) -> None:
        running = {"running": {"startedAt": "2020-01-01T00:00:00Z"}}
        cluster.set_pod(made, cluster.add_pod(made), "Running", running)

    with kubernetes(began_long_ago) as cluster:
        _killed_launcher(store, job, cluster)
        with pytest.raises(ends.TrainingTimeoutError):
            _launcher(cluster, store, "pytorchjob").run(job)


def test_a_launcher_whose_job_another_has_taken_over_leaves_it_alone(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(lambda *_: None) as cluster:
        old = _launcher(cluster, store, "pytorchjob")

        def meanwhile(*_: object) -> None:
            _killed_launcher(store, job, cluster)
            raise SystemExit(143)

        old._api.wait_for_change = meanwhile  # type: ignore[method-assign]
        with pytest.raises(SystemExit):
            old.run(job)
        assert len(cluster.jobs) == 1


def test_a_job_of_this_name_that_trains_something_else_is_left_alone(store: ArtifactStore, job: TrainingJob) -> None:
    with kubernetes(lambda *_: None) as cluster:
        _killed_launcher(store, job, cluster)
        (other,) = cluster.jobs.values()
        other["metadata"]["annotations"]["gatehouse.dev/job"] = "something else"
        with pytest.raises(ends.ClusterError, match="Another job has the name of this one"):
            _launcher(cluster, store, "pytorchjob").run(job)
        assert len(cluster.jobs) == 1


def test_a_launcher_in_a_pod_owns_its_job_and_takes_over_what_it_finds(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners: list[str] = []
    with kubernetes(lambda *_: None) as cluster:
        for name in ("first", "second"):
            monkeypatch.setenv("KFP_POD_NAME", name)
            monkeypatch.setenv("KFP_POD_UID", f"uid-{name}")
            _killed_launcher(store, job, cluster)
            (made,) = cluster.jobs.values()
            owners += [owner["uid"] for owner in made["metadata"]["ownerReferences"]]
    assert owners == ["uid-first", "uid-second"]


def test_the_role_of_the_documentation_is_what_the_launcher_asks_for_and_no_more(
    store: ArtifactStore, job: TrainingJob, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("KFP_POD_NAME", "launcher")
    monkeypatch.setenv("KFP_POD_UID", "uid")
    asked = set()
    for scenario, waits in ((_never_admitted, MOMENT), (_runs_on, 1)):
        with kubernetes(scenario) as cluster:
            if scenario is _never_admitted:
                _killed_launcher(store, job, cluster, kind)
            with pytest.raises(LauncherError):
                _launcher(cluster, store, kind, scheduling_minutes=waits).run(replace(job, timeout_minutes=MOMENT))
            asked |= cluster.asked
    role, _ = yaml.safe_load_all(ROLE.read_text())
    granted = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    others = {each for each in granted if each[1] in ("pytorchjobs", "trainjobs") and each[1] != f"{kind}s"}
    assert asked == granted - others


def test_nodes_that_do_not_divide_the_processes_are_refused_before_anything_is_done(
    store: ArtifactStore, job: TrainingJob, kind: str
) -> None:
    with kubernetes(succeed) as cluster:
        with pytest.raises(ConfigurationError, match=r"launch\.nodes=2: expected a divisor of training\.processes=1"):
            _launcher(cluster, store, kind, nodes=2).run(job)
        assert cluster.requests == []
