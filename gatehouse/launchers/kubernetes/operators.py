"""The training operators: the object of a job for each kind, the parts of its pods, and how a job ended."""

from dataclasses import dataclass
from typing import Any, Protocol

from gatehouse.launchers.spec import ClusterLaunch, PyTorchJobLaunch, TrainJobLaunch

LAUNCH = "gatehouse.dev/launch"
JOB_DIGEST = "gatehouse.dev/job"
LAUNCHER = "gatehouse.dev/launcher"
PROGRESS = "gatehouse.dev/progress"
MANAGED = {"app.kubernetes.io/managed-by": "gatehouse"}
WORK = "/var/lib/gatehouse"
_SCHEDULERS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}


@dataclass(frozen=True)
class ClusterJob:
    """One job for a cluster.

    Attributes:
        launch: Identifies this creation of the job. A job that is created again after a failure gets a new one.
        digest: Identifies the job's files and its program.
        env: Environment of its pods, without the variables from the settings.
        command: Command of each pod.
        processes: Number of workers per pod.
        deadline_seconds: After this time the operator ends the job, even without its launcher.
    """

    name: str
    namespace: str
    launch: str
    digest: str
    image: str
    env: dict[str, str]
    command: tuple[str, ...]
    processes: int
    deadline_seconds: int


@dataclass(frozen=True)
class JobEnd:
    """How a job ended: reason (one word) and message of the object's condition."""

    succeeded: bool
    reason: str
    message: str


class Operator(Protocol):
    """One kind of object that trains."""

    kind: str
    resource: str
    container: str

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """The object of a job, as it is sent to the API."""

    def pod_labels(self, name: str) -> dict[str, str]:
        """The labels that all pods of the job `name` have, and no others."""

    def end(self, job: dict[str, Any]) -> JobEnd | None:
        """How a job ended, from its object; None if it has not ended."""


class PyTorchJobs:
    """PyTorchJobs of the Kubeflow Training Operator v1, built with the models of kubeflow-training."""

    kind = "PyTorchJob"
    resource = "kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    container = "pytorch"

    def __init__(self, launch: PyTorchJobLaunch) -> None:
        self._launch = launch

    def pod_labels(self, name: str) -> dict[str, str]:
        """The label that the operator gives to the job's pods."""
        return {"training.kubeflow.org/job-name": name}

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """One Master and the other nodes as Workers; only Workers if the job is elastic."""
        from kubeflow.training import models
        from kubernetes.client import ApiClient

        launch = self._launch
        template = self._template(job)

        def replica(count: int) -> Any:
            return models.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy=launch.restart, template=template)

        elastic_policy, scheduling_policy = None, None
        if elastic := launch.elastic:
            replicas = {"Worker": replica(launch.nodes)}
            elastic_policy = models.KubeflowOrgV1ElasticPolicy(
                min_replicas=elastic.min_nodes,
                max_replicas=elastic.max_nodes,
                max_restarts=elastic.max_restarts,
                rdzv_backend="c10d",
                rdzv_id=job.launch,
            )
        else:
            workers = {"Worker": replica(launch.nodes - 1)} if launch.nodes > 1 else {}
            replicas = {"Master": replica(1), **workers}
        if launch.gang:
            wait = round(launch.scheduling_minutes * 60) if launch.gang == "coscheduling" else None
            scheduling_policy = models.KubeflowOrgV1SchedulingPolicy(
                min_available=launch.min_pods,
                queue=launch.gang_queue or None,
                priority_class=launch.priority or None,
                schedule_timeout_seconds=wait,
            )
        policy = launch.run_policy
        body = models.KubeflowOrgV1PyTorchJob(
            api_version="kubeflow.org/v1",
            kind=self.kind,
            metadata=_metadata(job, launch),
            spec=models.KubeflowOrgV1PyTorchJobSpec(
                nproc_per_node=str(job.processes),
                pytorch_replica_specs=replicas,
                elastic_policy=elastic_policy,
                run_policy=models.KubeflowOrgV1RunPolicy(
                    clean_pod_policy=policy.clean_pods,
                    backoff_limit=policy.backoff_limit,
                    active_deadline_seconds=job.deadline_seconds,
                    ttl_seconds_after_finished=policy.keep_seconds,
                    suspend=launch.suspend,
                    scheduling_policy=scheduling_policy,
                ),
            ),
        )
        serialized: dict[str, Any] = ApiClient().sanitize_for_serialization(body)
        return serialized

    def _template(self, job: ClusterJob) -> dict[str, Any]:
        launch = self._launch
        own, mounts = _volumes(launch)
        container = {
            "name": self.container,
            "image": job.image,
            "command": list(job.command),
            "env": _environment(launch, job.env),
            "resources": _resources(launch),
            "volumeMounts": mounts,
        }
        placed = _placement(launch, self.pod_labels(job.name), constraints=True)
        spec = {"containers": [container], "volumes": own} | placed
        # The operator checks the job's own deadline only when a pod changes. At this deadline the kubelet ends a pod.
        spec["activeDeadlineSeconds"] = job.deadline_seconds
        if launch.priority:
            spec["priorityClassName"] = launch.priority
        if launch.gang:
            spec["schedulerName"] = _SCHEDULERS[launch.gang]
        return {"metadata": _pod_metadata(launch), "spec": spec}

    def end(self, job: dict[str, Any]) -> JobEnd | None:
        """How the job ended, by its conditions `Succeeded` and `Failed`."""
        return _end(job, "Succeeded")


class TrainJobs:
    """TrainJobs of Kubeflow Trainer v2: the job names a runtime, and patches its pods."""

    kind = "TrainJob"
    resource = "trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    container = "node"

    def __init__(self, launch: TrainJobLaunch) -> None:
        self._launch = launch

    def pod_labels(self, name: str) -> dict[str, str]:
        """The label that JobSet gives to the job's pods."""
        return {"jobset.sigs.k8s.io/jobset-name": name}

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """The TrainJob, without the settings that belong to its runtime (restarts, gang, priority class)."""
        launch = self._launch
        own, mounts = _volumes(launch)
        containers = [{"name": self.container, "volumeMounts": mounts}]
        placed = _placement(launch, self.pod_labels(job.name), constraints=False)
        pod = {"metadata": _pod_metadata(launch), "spec": {"volumes": own, "containers": containers} | placed}
        replicated = {"name": "node", "template": {"spec": {"template": pod}}}
        patch = {
            "manager": "gatehouse.dev/launcher",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
        }
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": self.kind,
            "metadata": _metadata(job, launch),
            "spec": {
                "runtimeRef": {
                    "apiGroup": "trainer.kubeflow.org",
                    "kind": launch.runtime_kind,
                    "name": launch.runtime,
                },
                "suspend": launch.suspend,
                "activeDeadlineSeconds": job.deadline_seconds,
                "trainer": {
                    "image": job.image,
                    "command": list(job.command),
                    "numNodes": launch.nodes,
                    "numProcPerNode": job.processes,
                    "resourcesPerNode": _resources(launch),
                    "env": _environment(launch, job.env),
                },
                "runtimePatches": [patch],
            },
        }

    def end(self, job: dict[str, Any]) -> JobEnd | None:
        """How the job ended, by its conditions `Complete` and `Failed`."""
        return _end(job, "Complete")


def _end(job: dict[str, Any], success: str) -> JobEnd | None:
    """How a job ended; a condition with status False has not happened."""
    conditions = job.get("status", {}).get("conditions") or []
    for kind in ("Failed", success):
        for condition in conditions:
            if condition["type"] == kind and condition["status"] == "True":
                return JobEnd(kind == success, condition.get("reason", ""), condition.get("message", ""))
    return None


def _metadata(job: ClusterJob, launch: ClusterLaunch) -> dict[str, Any]:
    """Metadata of the object; by its annotations a launcher finds the job again and checks what it trains."""
    queue = {"kueue.x-k8s.io/queue-name": launch.queue, "kueue.x-k8s.io/priority-class": launch.queue_priority}
    return {
        "name": job.name,
        "namespace": job.namespace,
        "labels": MANAGED | {name: value for name, value in queue.items() if value} | launch.labels,
        "annotations": {LAUNCH: job.launch, JOB_DIGEST: job.digest} | launch.annotations,
    }


def _pod_metadata(launch: ClusterLaunch) -> dict[str, Any]:
    # A mesh's sidecar would outlive the training and keep the job from ending.
    annotations = {"sidecar.istio.io/inject": "false"} | launch.annotations
    return {"labels": MANAGED | launch.labels, "annotations": annotations}


def _environment(launch: ClusterLaunch, own: dict[str, str]) -> list[dict[str, Any]]:
    """Environment of the container, in a fixed order; `launch.env` overrides all other sources."""
    variables = own | {"TMPDIR": WORK, "GATEHOUSE_CACHE": f"{WORK}/cache"}
    if launch.nodes > 1:
        variables["GLOO_SOCKET_IFNAME"] = "eth0"
    environment: list[dict[str, Any]] = [
        {"name": name, "value": value} for name, value in sorted((variables | launch.env).items())
    ]
    for secret in launch.secrets:
        if secret.variable not in launch.env:
            field = "secretKeyRef" if secret.source == "secret" else "configMapKeyRef"
            value = {"name": secret.name, "key": secret.key, "optional": secret.optional}
            environment.append({"name": secret.variable, "valueFrom": {field: value}})
    return environment


def _resources(launch: ClusterLaunch) -> dict[str, Any]:
    """Requests and limits of one pod. They are equal: such pods are evicted last."""
    resources = launch.resources
    amounts = {"cpu": resources.cpu, "memory": resources.memory}
    if resources.gpus:
        amounts[resources.gpu] = str(resources.gpus)
    return {"requests": dict(amounts), "limits": dict(amounts)}


def _volumes(launch: ClusterLaunch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of the pod, and where its container mounts them."""
    volumes = [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": launch.shared_memory}},
        {"name": "work", "emptyDir": {}},
    ]
    mounts: list[dict[str, Any]] = [{"name": "shm", "mountPath": "/dev/shm"}, {"name": "work", "mountPath": WORK}]
    for number, volume in enumerate(launch.volumes):
        name, claim = f"volume-{number}", {"claimName": volume.claim, "readOnly": volume.read_only}
        volumes.append({"name": name, "persistentVolumeClaim": claim})
        mounts.append({"name": name, "mountPath": volume.path, "readOnly": volume.read_only})
    return volumes, mounts


def _placement(launch: ClusterLaunch, pods: dict[str, str], *, constraints: bool) -> dict[str, Any]:
    """Fields of a pod's spec that say on which nodes it may run, and with which service account.

    Args:
        launch: The settings.
        pods: The labels that all pods of the job have, and no others.
        constraints: Whether the operator supports topology spread constraints. If not, spread pods get an anti-affinity
            to each other.
    """
    placed: dict[str, Any] = {"terminationGracePeriodSeconds": launch.grace_seconds}
    if launch.service_account:
        placed["serviceAccountName"] = launch.service_account
    if launch.pull_secrets:
        placed["imagePullSecrets"] = [{"name": name} for name in launch.pull_secrets]
    if launch.node_selector:
        placed["nodeSelector"] = dict(launch.node_selector)
    if launch.tolerations or launch.spot:
        tolerations = [toleration.model_dump() for toleration in (*launch.tolerations, *launch.spot)]
        placed["tolerations"] = [{name: value for name, value in row.items() if value} for row in tolerations]
    topology, selector = launch.topology, {"matchLabels": dict(pods)}
    if topology and topology.place == "spread" and constraints:
        constraint = {
            "maxSkew": 1,
            "topologyKey": topology.key,
            "whenUnsatisfiable": "DoNotSchedule" if topology.required else "ScheduleAnyway",
            "labelSelector": selector,
        }
        placed["topologySpreadConstraints"] = [constraint]
    elif topology:
        term = {"topologyKey": topology.key, "labelSelector": selector}
        when = "DuringSchedulingIgnoredDuringExecution"
        if topology.required:
            rule: dict[str, Any] = {f"required{when}": [term]}
        else:
            rule = {f"preferred{when}": [{"weight": 100, "podAffinityTerm": term}]}
        placed["affinity"] = {"podAffinity" if topology.place == "pack" else "podAntiAffinity": rule}
    return placed
