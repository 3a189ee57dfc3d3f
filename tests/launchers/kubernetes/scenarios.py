"""Launches against a scripted cluster, and what may happen to a job there."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes.api import ApiTimeouts, KubernetesApi
from gatehouse.launchers.kubernetes.launcher import ClusterLauncher
from gatehouse.launchers.kubernetes.operators import PyTorchJobs, TrainJobs
from gatehouse.launchers.kubernetes.transfer import fetch_inputs, report_success
from gatehouse.launchers.launcher import LOG, RESULT, WEIGHTS, TrainingJob
from gatehouse.launchers.spec import PyTorchJobLaunch, TrainJobLaunch
from gatehouse.store.store import ArtifactStore
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object, container_of

TIMEOUTS = ApiTimeouts(
    request=30, retry=60, first_pause=0.005, longest_pause=0.05, resync=0.1, min_interval=0.005, cleanup=30
)
IMPATIENT = ApiTimeouts(request=5, retry=0.3, first_pause=0.005, longest_pause=0.05, min_interval=0.05, cleanup=0.3)
Scenario = Callable[[Cluster, Object], None]


def launcher_on(
    cluster: Cluster, store: ArtifactStore, kind: str, timeouts: ApiTimeouts = TIMEOUTS, **settings: object
) -> ClusterLauncher:
    api = KubernetesApi(timeouts, cluster.kubeconfig(Path(store.address).parent))
    if kind == "pytorchjob":
        launch = PyTorchJobLaunch.model_validate({"kind": kind} | settings)
        return ClusterLauncher(store, PyTorchJobs(launch), launch, api=api)
    other = TrainJobLaunch.model_validate({"kind": kind} | settings)
    return ClusterLauncher(store, TrainJobs(other), other, api=api)


def run(scenario: Scenario, store: ArtifactStore, job: TrainingJob, kind: str, **settings: object) -> Cluster:
    """Run a job; whatever becomes of it, no object is left on the cluster."""
    with kubernetes(scenario) as cluster:
        cluster.log = job.directory / LOG
        try:
            launcher_on(cluster, store, kind, **settings).run(job)  # type: ignore[arg-type] - timeouts are not among them
        finally:
            assert cluster.jobs == {}, "the job is left behind"
        return cluster


def error_of(
    error: type[LauncherError],
    scenario: Scenario,
    store: ArtifactStore,
    job: TrainingJob,
    kind: str,
    **settings: object,
) -> tuple[str, str]:
    with pytest.raises(LauncherError) as caught:
        run(scenario, store, job, kind, **settings)
    assert type(caught.value) is error, caught.value
    first, _, rest = str(caught.value).partition("\n")
    return first, rest


def run_and_die(store: ArtifactStore, job: TrainingJob, cluster: Cluster, kind: str = "pytorchjob") -> None:
    """A launcher that is killed as soon as it watches its job: nothing is cleaned up."""
    launcher = launcher_on(cluster, store, kind)
    launcher._api.list = die  # type: ignore[method-assign]
    launcher._api.cleaning_up = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        launcher.run(job)


def die(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def once(kind: str) -> dict[str, object]:
    """Settings with which a pod may start again once, where the launcher counts that."""
    return {"run_policy": {"backoff_limit": 1}} if kind == "pytorchjob" else {}


def train(job: Object, folder: Path, weights: bytes = b"weights", named: bytes = b"weights") -> None:
    """Do what a pod does that trains: fetch, and send a result that names the weights `named`."""
    _, container = container_of(job)
    address, at, record = container["command"][3:6]
    store = ArtifactStore.open(address)
    fetch_inputs(store, at, record, folder)
    assert (folder / "train" / "labels.npy").read_bytes() == b"labels"
    store.append(f"{at}/pods", {"environment": {"gatehouse.hardware": "of the pod"}})
    (folder / WEIGHTS).write_bytes(weights)
    (folder / RESULT).write_text(json.dumps({"weights_sha256": hashlib.sha256(named).hexdigest()}))
    report_success(store, at, folder)


def succeed(cluster: Cluster, job: Object) -> None:
    pod = cluster.add_pod(job)
    cluster.start(job, pod)
    cluster.say(pod, "epoch 1/1")
    folder = Path(container_of(job)[1]["command"][3]).parent / f"pod-{pod['metadata']['uid']}"
    folder.mkdir()
    train(job, folder)
    cluster.end(job, pod, 0)
    cluster.conclude(job, succeeded=True)


def master_fails(cluster: Cluster, job: Object) -> None:
    """The first pod fails by itself, and the second is ended for it."""
    first, second = cluster.add_pod(job), cluster.add_pod(job, "worker-0")
    for pod in (first, second):
        cluster.start(job, pod)
    for line in range(30):
        cluster.say(first, f"line {line}")
    cluster.say(second, "terminated by its peer")
    cluster.end(job, first, 1, at="2026-01-01T00:00:00Z")
    cluster.end(job, second, 143, at="2026-01-01T00:00:01Z")
    cluster.conclude(job, succeeded=False, reason="JobFailed", message="it failed 1 times")


def fail_again_and_again(code: int, reason: str = "", **status: object) -> Scenario:
    """Pods fail in the same way as often as the operator starts them."""

    def scenario(cluster: Cluster, job: Object) -> None:
        pod: Object | None = cluster.add_pod(job)
        started = 0
        while pod is not None:
            cluster.start(job, pod)
            cluster.say(pod, "epoch 1/2")
            started += 1
            cluster.await_log("epoch 1/2", started)
            cluster.await_looks(2)  # A look that began while it runs: none while it has failed.
            pod = cluster.fail(job, pod, code, reason, **status)

    return scenario
