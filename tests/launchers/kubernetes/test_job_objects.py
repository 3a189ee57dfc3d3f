"""The objects that the launchers create: field by field, and every one held against the CRD's schema."""

from typing import Any

import pytest

from gatehouse.launchers.kubernetes.operators import ClusterJob, PyTorchJobs, TrainJobs
from gatehouse.launchers.spec import PyTorchJobLaunch, TrainJobLaunch
from tests.stand_ins.kubernetes_kinds import validator

CLUSTER_JOB = ClusterJob(
    name="gatehouse-1",
    namespace="ml",
    launch="first",
    digest="d1",
    image="registry/gatehouse@sha256:1",
    env={"GATEHOUSE_IMAGE": "registry.example/gatehouse@sha256:00", "NCCL_DEBUG": "INFO"},
    command=("python", "-m", "pod"),
    processes=2,
    deadline_seconds=6300,
)
ALL: dict[str, Any] = {
    "nodes": 2,
    "resources": {"cpu": "8", "memory": "64Gi", "gpus": 2},
    "shared_memory": "8Gi",
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
    "queue": "team",
    "queue_priority": "high",
    "service_account": "trainer",
    "env": {"NCCL_DEBUG": "WARN"},
    "secrets": [{"variable": "TOKEN", "name": "tokens", "key": "mlflow", "optional": False}],
    "pull_secrets": ["registry"],
    "volumes": [{"claim": "store", "path": "/store", "read_only": True}],
    "labels": {"team": "risk"},
    "annotations": {"owner": "risk"},
    "grace_seconds": 60,
}
CONTAINER = {
    "env": [
        {"name": "GATEHOUSE_CACHE", "value": "/var/lib/gatehouse/cache"},
        {"name": "GATEHOUSE_IMAGE", "value": "registry.example/gatehouse@sha256:00"},
        {"name": "GLOO_SOCKET_IFNAME", "value": "eth0"},
        {"name": "NCCL_DEBUG", "value": "WARN"},
        {"name": "TMPDIR", "value": "/var/lib/gatehouse"},
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "tokens", "key": "mlflow", "optional": False}}},
    ],
    "resources": {
        "requests": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"},
        "limits": {"cpu": "8", "memory": "64Gi", "nvidia.com/gpu": "2"},
    },
}
MOUNTS = [
    {"name": "shm", "mountPath": "/dev/shm"},
    {"name": "work", "mountPath": "/var/lib/gatehouse"},
    {"name": "volume-0", "mountPath": "/store", "readOnly": True},
]
METADATA = {
    "name": "gatehouse-1",
    "namespace": "ml",
    "labels": {
        "app.kubernetes.io/managed-by": "gatehouse",
        "kueue.x-k8s.io/queue-name": "team",
        "kueue.x-k8s.io/priority-class": "high",
        "team": "risk",
    },
    "annotations": {"gatehouse.dev/launch": "first", "gatehouse.dev/job": "d1", "owner": "risk"},
}
POD_METADATA = {
    "labels": {"app.kubernetes.io/managed-by": "gatehouse", "team": "risk"},
    "annotations": {"sidecar.istio.io/inject": "false", "owner": "risk"},
}


POD: dict[str, Any] = {
    "volumes": [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "work", "emptyDir": {}},
        {"name": "volume-0", "persistentVolumeClaim": {"claimName": "store", "readOnly": True}},
    ],
    "terminationGracePeriodSeconds": 60,
    "serviceAccountName": "trainer",
    "imagePullSecrets": [{"name": "registry"}],
    "nodeSelector": {"pool": "gpu"},
    "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
}


def _pytorchjob(**settings: Any) -> dict[str, Any]:
    built = PyTorchJobs(PyTorchJobLaunch.model_validate({"kind": "pytorchjob"} | settings)).build(CLUSTER_JOB)
    validator("PyTorchJob").validate(built)
    return built


def _trainjob(**settings: Any) -> dict[str, Any]:
    built = TrainJobs(TrainJobLaunch.model_validate({"kind": "trainjob"} | settings)).build(CLUSTER_JOB)
    validator("TrainJob").validate(built)
    return built


def test_a_pytorchjob_with_every_setting_is_exactly_this() -> None:
    own = {"clean_pods": "All", "backoff_limit": 5, "keep_seconds": 60}
    container = CONTAINER | {
        "name": "pytorch",
        "image": "registry/gatehouse@sha256:1",
        "command": ["python", "-m", "pod"],
        "volumeMounts": MOUNTS,
    }
    pod = POD | {
        "containers": [container],
        "priorityClassName": "batch",
        "schedulerName": "volcano",
        "activeDeadlineSeconds": 6300,
    }
    replica = {"replicas": 1, "restartPolicy": "ExitCode", "template": {"metadata": POD_METADATA, "spec": pod}}
    built = _pytorchjob(**ALL, run_policy=own, priority="batch", gang="volcano")
    assert built == {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": METADATA,
        "spec": {
            "nprocPerNode": "2",
            "pytorchReplicaSpecs": {"Master": replica, "Worker": replica},
            "runPolicy": {
                "cleanPodPolicy": "All",
                "backoffLimit": 5,
                "activeDeadlineSeconds": 6300,
                "ttlSecondsAfterFinished": 60,
                "schedulingPolicy": {"minAvailable": 2, "priorityClass": "batch"},
            },
        },
    }


def test_a_trainjob_with_every_setting_is_exactly_this() -> None:
    pod = POD | {"containers": [{"name": "node", "volumeMounts": MOUNTS}]}
    replicated = {"name": "node", "template": {"spec": {"template": {"metadata": POD_METADATA, "spec": pod}}}}
    trainer = {
        "image": "registry/gatehouse@sha256:1",
        "command": ["python", "-m", "pod"],
        "numNodes": 2,
        "numProcPerNode": 2,
        "resourcesPerNode": CONTAINER["resources"],
        "env": CONTAINER["env"],
    }
    assert _trainjob(**ALL, runtime="torch") == {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": METADATA,
        "spec": {
            "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "torch"},
            "activeDeadlineSeconds": 6300,
            "trainer": trainer,
            "runtimePatches": [
                {
                    "manager": "gatehouse.dev/launcher",
                    "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
                }
            ],
        },
    }


def test_an_elastic_job_says_its_minimum_where_its_operator_knows_one() -> None:
    spec = _pytorchjob(nodes=8, min_nodes=6, gang="volcano")["spec"]
    assert spec["elasticPolicy"] == {
        "minReplicas": 6,
        "maxReplicas": 8,
        "rdzvBackend": "c10d",
        "rdzvHost": "gatehouse-1-master-0",
    }
    assert spec["runPolicy"]["schedulingPolicy"]["minAvailable"] == 6
    assert _trainjob(nodes=8, min_nodes=6)["spec"]["trainer"]["numNodes"] == 8


def test_a_gang_is_all_nodes() -> None:
    gang = _pytorchjob(nodes=3, gang="coscheduling")["spec"]
    assert gang["runPolicy"]["schedulingPolicy"] == {"minAvailable": 3}
    template = gang["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    assert template["schedulerName"] == "scheduler-plugins-scheduler"


@pytest.mark.parametrize(
    ("topology", "expected"),
    [
        ({"place": "spread", "required": True}, {"whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}),
        ({"place": "spread"}, {"whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 1}),
        ({"place": "pack", "required": True}, "required"),
        ({"place": "pack"}, "preferred"),
    ],
)
def test_pods_are_placed_relative_to_each_other(topology: dict[str, Any], expected: Any) -> None:
    pod = _pytorchjob(topology=topology | {"key": "rack"})["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]
    selector = {
        "topologyKey": "rack",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "gatehouse-1"}},
    }
    if topology["place"] == "spread":
        assert pod["topologySpreadConstraints"] == [expected | selector]
    else:
        ((when, [term]),) = pod["affinity"]["podAffinity"].items()
        assert when.startswith(expected) and selector in (term, term.get("podAffinityTerm"))
