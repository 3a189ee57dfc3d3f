"""A driver as a RayJob or an Indexed Job: what a cluster is asked for, what its answers mean, and what is left."""

import copy
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gatehouse.errors import GatehouseError, PieceError
from gatehouse.launchers.kubernetes.api import ApiTimeouts, KubernetesApi
from gatehouse.launchers.launcher import ClusterError
from gatehouse.pieces import cluster_job, elsewhere
from gatehouse.pieces.cluster_job import ClusterJob
from gatehouse.pieces.engine import Engine
from gatehouse.runtime.variables import ENGINE
from tests.launchers.kubernetes.test_requests import granted
from tests.pieces.ray_cluster import ray_cluster
from tests.pieces.test_pieces import Squares
from tests.stand_ins.kubernetes_api import Cluster, kubernetes
from tests.stand_ins.kubernetes_kinds import Object, validator

FAST = ApiTimeouts(request=5, retry=5, first_pause=0.01, longest_pause=0.02, resync=0.1, min_interval=0.02, watch=1)
QUEUE = "kueue.x-k8s.io/queue-name"
OWN_POD = {
    "metadata": {"name": "task", "uid": "uid", "labels": {QUEUE: "team", "pipeline/runid": "1"}},
    "spec": {
        "serviceAccountName": "pipeline-runner",
        "nodeSelector": {"pool": "data"},
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "securityContext": {"runAsUser": 1000},
        "volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "var-run-argo", "emptyDir": {}},
            {"name": "kube-api-access-x", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}},
        ],
        "containers": [
            {"name": "wait", "image": "argoexec"},
            {
                "name": "main",
                "image": "registry/ray@sha256:1",
                "env": [
                    {"name": "GATEHOUSE_RUN_ID", "value": "run"},
                    {"name": "KFP_POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "ARGO_TEMPLATE", "value": "{}"},
                    {
                        "name": "AWS_SECRET_ACCESS_KEY",
                        "valueFrom": {"secretKeyRef": {"name": "gatehouse-credentials", "key": "key"}},
                    },
                ],
                "volumeMounts": [
                    {"name": "data", "mountPath": "/data"},
                    {"name": "var-run-argo", "mountPath": "/var/run/argo"},
                    {"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"},
                ],
            },
        ],
    },
}


@pytest.fixture
def squares(tmp_path: Path) -> Squares:
    return Squares(tmp_path)


@pytest.fixture(params=["ray", "indexed"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Use = Callable[[Cluster, str], None]


@pytest.fixture
def use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Use:
    """Let the engine of a kind start its drivers in a cluster."""

    def use(cluster: Cluster, kind: str) -> None:
        cluster.pods["task"] = copy.deepcopy(OWN_POD)
        api = KubernetesApi(FAST, cluster.kubeconfig(tmp_path))
        monkeypatch.setattr(elsewhere, "_place", lambda engine, name: ClusterJob(engine, name, api))
        monkeypatch.setenv(ENGINE, Engine(kind=kind, workers=2, memory="1G").model_dump_json())  # type: ignore[arg-type]  # A text of `kind`.

    monkeypatch.setattr(elsewhere, "_LOOK_SECONDS", 0.05)
    monkeypatch.setattr(cluster_job, "version", lambda package: "2.60.0")
    for name, value in {"KFP_POD_NAME": "task", "KFP_POD_UID": "uid", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    return use


def indexed_pods(cluster: Cluster, job: Object) -> None:
    """Run each index in a process; one that is killed starts again, as often as the job says."""
    spec, last = job["spec"], None
    for index in range(spec["completions"]):
        (container,) = spec["template"]["spec"]["containers"]
        command = [word.replace("$(JOB_COMPLETION_INDEX)", str(index)) for word in container["command"]]
        for attempt in range(spec["backoffLimitPerIndex"] + 1):
            pod = last = cluster.add_pod(job, f"{index}-{attempt}")
            cluster.start(job, pod)
            variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            ended = subprocess.run([sys.executable, *command[1:]], env=variables).returncode
            cluster.end(job, pod, 137 if ended == -signal.SIGKILL else ended, "OOMKilled" if ended else "")
            if not ended:
                break
        else:
            return cluster.conclude(job, succeeded=False, reason="FailedIndexes", message="Job has failed indexes")
    assert last
    return cluster.conclude(job, succeeded=True)


def end_ray_job(cluster: Cluster, job: Object, state: str, status: str, reason: str = "", message: str = "") -> None:
    job["status"] = {"jobDeploymentStatus": state, "jobStatus": status, "reason": reason, "message": message}
    cluster.touch(job)


def test_an_indexed_job_runs_each_piece_once_and_leaves_nothing(squares: Squares, use: Use) -> None:
    with kubernetes(indexed_pods) as cluster:
        use(cluster, "indexed")
        assert squares.run(2, 3, deaths=1) == [4, 9]
        assert squares.ran() == {2: 2, 3: 2}
        assert cluster.jobs == {} and list(squares.store.objects.list("jobs")) == []


def test_a_ray_job_runs_the_pieces_and_leaves_nothing(squares: Squares, use: Use) -> None:
    def operator(cluster: Cluster, job: Object) -> None:
        command = job["spec"]["entrypoint"].split()
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "RAY_ADDRESS": address}
        job["status"] = {"jobDeploymentStatus": "Running", "jobStatus": "RUNNING"}
        cluster.processes.append(subprocess.Popen([sys.executable, *command[1:]], env=variables))

    with ray_cluster() as address, kubernetes(operator) as cluster:
        use(cluster, "ray")
        assert squares.run(2, 3, deaths=1) == [4, 9]
        assert squares.ran() == {2: 2, 3: 2}
        assert cluster.jobs == {} and list(squares.store.objects.list("jobs")) == []


def made(squares: Squares, use: Use, kind: str) -> tuple[Object, Cluster]:
    """The object of a driver, which somebody deletes."""

    def nobody(cluster: Cluster, job: Object) -> None:
        cluster.await_looks(1)
        cluster.delete(f"/apis/{job['apiVersion']}/namespaces/ml/{job['kind'].lower()}s/{job['metadata']['name']}")

    with kubernetes(nobody) as cluster:
        use(cluster, kind)
        with pytest.raises(PieceError, match="was deleted"):
            squares.run(2, 3)
    return cluster.created[0], cluster


def test_the_object_is_what_its_operator_takes_and_its_pods_are_like_the_task(
    squares: Squares, use: Use, kind: str
) -> None:
    body, _ = made(squares, use, kind)
    assert [*validator(body["kind"]).iter_errors(body | {"more": 1})], "the stand-in took it, and takes no other fields"
    assert body["metadata"]["labels"][QUEUE] == "team" and "pipeline/runid" not in body["metadata"]["labels"]
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid"
    templates = [body["spec"]["template"]] if kind == "indexed" else []
    if kind == "ray":
        ray = body["spec"]["rayClusterSpec"]
        assert ray["authOptions"] == {"mode": "token"} and ray["rayVersion"] == "2.60.0"
        assert ray["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
        assert ray["workerGroupSpecs"][0]["replicas"] == 2
        templates = [ray["headGroupSpec"]["template"], ray["workerGroupSpecs"][0]["template"]]
    for template in templates:
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert container["image"] == "registry/ray@sha256:1"
        names = [variable["name"] for variable in container["env"]]
        assert names[:2] == ["GATEHOUSE_RUN_ID", "AWS_SECRET_ACCESS_KEY"] and "KFP_POD_NAME" not in names
        assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data"]
        assert [volume["name"] for volume in spec["volumes"]] == ["data"]
        assert (spec["serviceAccountName"], spec["nodeSelector"]) == ("pipeline-runner", {"pool": "data"})
        assert QUEUE not in template["metadata"]["labels"]
        security = container["securityContext"]
        assert security["runAsNonRoot"] and not security["allowPrivilegeEscalation"]
        assert security["capabilities"] == {"drop": ["ALL"]} and security["seccompProfile"]["type"] == "RuntimeDefault"


def test_a_driver_asks_for_no_more_than_the_role_grants(squares: Squares, use: Use, kind: str) -> None:
    assert made(squares, use, kind)[1].permissions <= granted()


def _failing(squares: Squares, use: Use, kind: str, scenario: Callable[[Cluster, Object], None], **more: Any) -> str:
    with kubernetes(scenario) as cluster:
        for name, value in more.items():
            setattr(cluster, name, value)
        use(cluster, kind)
        with pytest.raises(GatehouseError) as raised:
            squares.run(1, 2)
        assert cluster.jobs == {}
    assert isinstance(raised.value, PieceError | ClusterError)
    return str(raised.value)


def test_no_kuberay_is_said(squares: Squares, use: Use) -> None:
    assert "KubeRay" in _failing(squares, use, "ray", lambda cluster, job: None, unserved=("rayjobs",))


def test_a_kuberay_that_cannot_ask_for_tokens_is_refused(squares: Squares, use: Use) -> None:
    assert "later release" in _failing(squares, use, "ray", lambda cluster, job: None, lacks=("backoffLimit",))


def test_workers_without_memory_are_said(squares: Squares, use: Use) -> None:
    def killed(cluster: Cluster, job: Object) -> None:
        pod = cluster.add_pod(job, "0")
        cluster.end(job, pod, 137, "OOMKilled")
        cluster.conclude(job, succeeded=False, reason="FailedIndexes", message="Job has failed indexes")

    assert "engine.memory" in _failing(squares, use, "indexed", killed)


def test_a_ray_job_that_fails_says_why(squares: Squares, use: Use) -> None:
    def fails(cluster: Cluster, job: Object) -> None:
        end_ray_job(cluster, job, "Failed", "FAILED", "AppFailed", "No module named gatehouse")

    assert "No module named gatehouse" in _failing(squares, use, "ray", fails)


def test_pods_that_do_not_start_end_the_task(
    squares: Squares, use: Use, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unschedulable(cluster: Cluster, job: Object) -> None:
        cluster.add_pod(
            job,
            "0",
            conditions=[
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "Insufficient cpu"}
            ],
        )

    def no_image(cluster: Cluster, job: Object) -> None:
        waiting = {"waiting": {"reason": "InvalidImageName", "message": "no such name"}}
        cluster.set_pod(job, cluster.add_pod(job, "0"), "Pending", waiting)

    assert "InvalidImageName" in _failing(squares, use, kind, no_image)
    monkeypatch.setattr(cluster_job, "QUEUE_MINUTES", 0.01)
    assert "Insufficient cpu" in _failing(squares, use, kind, unschedulable)


def test_a_task_that_is_started_again_finds_its_job(squares: Squares, use: Use, kind: str) -> None:
    class KilledError(BaseException):
        """The end of a process that cleans nothing up."""

    def die(*_: object) -> None:
        raise KilledError

    with kubernetes(lambda cluster, job: None) as cluster:
        use(cluster, kind)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ClusterJob, "has_ended", die)
            patch.setattr(ClusterJob, "remove", lambda self: None)
            patch.setattr(elsewhere, "remove_record", lambda *_: None)
            with pytest.raises(KilledError):
                squares.run(1, 2)
        (job,) = cluster.jobs.values()
        folder = next(iter(squares.store.objects.list("jobs"))).partition("/calls")[0]
        command = [sys.executable, "-m", "gatehouse.pieces.driver", squares.store.address, folder]
        variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        if kind == "indexed":
            for index in range(2):
                subprocess.run([*command, f"--index={index}"], env=variables, check=True)
            cluster.conclude(job, succeeded=True)
            assert squares.run(1, 2) == [1, 4]
            assert cluster.created == [job]
            return
        end_ray_job(cluster, job, "Complete", "SUCCEEDED")
        cluster.scenario = lambda cluster, job: end_ray_job(cluster, job, "Complete", "SUCCEEDED")
        with pytest.raises(PieceError, match="no answer"):
            squares.run(1, 2)
        assert len(cluster.created) == 2, "the ended job of the predecessor is replaced"
