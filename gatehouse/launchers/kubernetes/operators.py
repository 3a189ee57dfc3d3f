"""The training operators: the object of a job for each kind, who owns it, and how it ended."""

import logging
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes.api import ApiConflict, KubernetesApi
from gatehouse.launchers.launcher import ClusterError, TrainingCancelledError
from gatehouse.launchers.spec import ClusterLaunch, PyTorchJobLaunch, Topology, TrainJobLaunch

logger = logging.getLogger(__name__)


class OwnedJob:
    """One object of a training operator.

    An annotation of the object names its owner: the launcher that created it or found it last. Only the owner deletes
    it.
    """

    def __init__(self, api: KubernetesApi, path: str, name: str, digest: str) -> None:
        """Prepare to find or create the job."""
        self._api, self.path, self.name, self.digest = api, path, name, digest
        self.uid = ""
        self.namespace = path.split("/")[-2]
        self._owner = uuid.uuid4().hex

    def find(self) -> dict[str, Any] | None:
        """The job, taken over from its earlier launcher; None if there is none.

        If the earlier launcher has deleted the job, this waits until the object is gone.
        """
        until = time.monotonic() + self._api.timeouts.retry
        while (job := self._get()) is not None:
            metadata = job["metadata"]
            if metadata.get("annotations", {}).get(JOB_DIGEST) != self.digest:
                raise ClusterError(
                    "Another job has the name of this one.\n"
                    f"{self.path}/{self.name} does not have the annotation {JOB_DIGEST}={self.digest}. Delete it."
                )
            if "deletionTimestamp" not in metadata:
                self.uid = metadata["uid"]
                logger.info("Found the job %s again: watching it.", self.name)
                # Its owner in the cluster is the earlier launcher's pod, and it would be deleted with that pod.
                self._patch({"annotations": {LAUNCHER: self._owner}} | self._owner_reference())
                return job
            if time.monotonic() > until:
                raise ClusterError(
                    f"The job of an earlier launch is still being deleted.\n{self.path}/{self.name} was deleted at "
                    f"{metadata['deletionTimestamp']}, and waits for its finalizers {metadata.get('finalizers', [])}. "
                    "Find out why they are not removed, and run again."
                )
            time.sleep(self._api.timeouts.min_interval)
        return None

    def create(self, body: dict[str, Any]) -> dict[str, Any]:
        """Create the job, or use the one that an earlier attempt of this call created if its answer was lost."""
        metadata = body["metadata"]
        metadata |= {"annotations": metadata["annotations"] | {LAUNCHER: self._owner}} | self._owner_reference()
        try:
            job = self._api.create(self.path, body)
        except ApiConflict as conflict:
            if conflict.status != 404 and (existing := self.find()):
                return existing
            raise ClusterError(
                f"The cluster refused the {body['kind']} with HTTP {conflict.status}. 404: its operator is not "
                f"installed, or there is no such namespace; else run again.\nThe request was POST {self.path}."
            ) from conflict
        self.uid = job["metadata"]["uid"]
        logger.info("Created the %s %s.", body["kind"], self.name)
        return job

    def current(self) -> dict[str, Any]:
        """The job as it is now; raises `TrainingCancelledError` if it was deleted."""
        job = self._get()
        if job is None or job["metadata"]["uid"] != self.uid or "deletionTimestamp" in job["metadata"]:
            raise TrainingCancelledError(
                f"Training was cancelled: its job was deleted while it ran.\nThe job was {self.path}/{self.name}. Run "
                "again to start it anew, from its last checkpoint."
            )
        return job

    def save_progress(self, progress: str) -> None:
        """Write on the job the state that a later launcher needs."""
        self._patch({"annotations": {PROGRESS: progress}})

    def delete(self) -> None:
        """Delete the job and its pods, if it exists and no other launcher has taken it over.

        If the cluster does not answer, a warning says what remains.
        """
        try:
            with self._api.cleaning_up():
                job = self._get()
                if job is not None and job["metadata"].get("annotations", {}).get(LAUNCHER) == self._owner:
                    self._api.delete(f"{self.path}/{self.name}", job["metadata"]["uid"])
        except LauncherError as error:
            logger.warning("%s/%s could not be deleted, delete it by hand: %s", self.path, self.name, error)

    def _get(self) -> dict[str, Any] | None:
        try:
            return self._api.get(f"{self.path}/{self.name}")
        except ApiConflict:
            return None

    def _patch(self, metadata: dict[str, Any]) -> None:
        with suppress(ApiConflict):
            self._api.patch(f"{self.path}/{self.name}", {"metadata": metadata})

    def _owner_reference(self) -> dict[str, Any]:
        """This pod as the owner of the job, if this is a pod in the namespace of the job."""
        name, uid = os.environ.get("KFP_POD_NAME", ""), os.environ.get("KFP_POD_UID", "")
        if not uid or self.namespace != self._api.namespace:
            return {}
        return {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}]}


LAUNCH = "gatehouse.dev/launch"
JOB_DIGEST = "gatehouse.dev/job"
LAUNCHER = "gatehouse.dev/launcher"
PROGRESS = "gatehouse.dev/progress"
MANAGED = {"app.kubernetes.io/managed-by": "gatehouse"}
WORK = "/var/lib/gatehouse"
_SCHEDULERS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}


@dataclass(frozen=True)
class ClusterJob:
    """One job for a cluster."""

    name: str
    namespace: str
    launch: str  # identifies this creation of the job, which is created anew after a failure
    digest: str  # identifies the job's files and its program
    image: str
    env: dict[str, str]  # of its pods, without the variables from the settings
    command: tuple[str, ...]
    processes: int  # workers per pod
    deadline_seconds: int  # after which the operator ends the job, even without its launcher


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
    label: str  # all pods of a job have it, and no others; its value is the job's name
    success: str  # condition of a job that has succeeded; one that failed has the condition `Failed`

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """The object of a job, as it is sent to the API."""


class PyTorchJobs:
    """PyTorchJobs of the Kubeflow Training Operator v1."""

    kind = "PyTorchJob"
    resource = "kubeflow.org/v1/namespaces/{namespace}/pytorchjobs"
    container = "pytorch"
    label = "training.kubeflow.org/job-name"
    success = "Succeeded"

    def __init__(self, launch: PyTorchJobLaunch) -> None:
        self._launch = launch

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """One Master, and the other nodes as Workers."""
        launch, policy = self._launch, self._launch.run_policy
        volumes, mounts = _volumes(launch)
        container = {
            "name": self.container,
            "image": job.image,
            "command": list(job.command),
            "env": _environment(launch, job.env),
            "resources": _resources(launch),
            "volumeMounts": mounts,
        }
        pod = {"containers": [container], "volumes": volumes} | _placement(launch)
        # The operator checks the job's own deadline only when a pod changes. At this deadline the kubelet ends a pod.
        pod["activeDeadlineSeconds"] = job.deadline_seconds
        if launch.priority:
            pod["priorityClassName"] = launch.priority
        if launch.topology:
            pod |= _topology(launch.topology, {"matchLabels": {self.label: job.name}})
        run_policy: dict[str, Any] = {
            "cleanPodPolicy": policy.clean_pods,
            "backoffLimit": policy.backoff_limit,
            "activeDeadlineSeconds": job.deadline_seconds,
            "ttlSecondsAfterFinished": policy.keep_seconds,
        }
        if launch.gang:
            pod["schedulerName"] = _SCHEDULERS[launch.gang]
            run_policy["schedulingPolicy"] = {"minAvailable": launch.nodes}
            if launch.priority:
                run_policy["schedulingPolicy"]["priorityClass"] = launch.priority
        template = {"metadata": _pod_metadata(launch), "spec": pod}

        def replica(count: int) -> dict[str, Any]:
            return {"replicas": count, "restartPolicy": launch.restart, "template": template}

        workers = {"Worker": replica(launch.nodes - 1)} if launch.nodes > 1 else {}
        spec = {
            "nprocPerNode": str(job.processes),
            "pytorchReplicaSpecs": {"Master": replica(1), **workers},
            "runPolicy": run_policy,
        }
        return {"apiVersion": "kubeflow.org/v1", "kind": self.kind, "metadata": _metadata(job, launch), "spec": spec}


class TrainJobs:
    """TrainJobs of Kubeflow Trainer v2: the job names a runtime, and patches its pods."""

    kind = "TrainJob"
    resource = "trainer.kubeflow.org/v1alpha1/namespaces/{namespace}/trainjobs"
    container = "node"
    label = "jobset.sigs.k8s.io/jobset-name"
    success = "Complete"

    def __init__(self, launch: TrainJobLaunch) -> None:
        self._launch = launch

    def build(self, job: ClusterJob) -> dict[str, Any]:
        """The TrainJob, without the settings that belong to its runtime (restarts, gang, topology, priority class)."""
        launch = self._launch
        volumes, mounts = _volumes(launch)
        pod = {"volumes": volumes, "containers": [{"name": self.container, "volumeMounts": mounts}]}
        template = {"metadata": _pod_metadata(launch), "spec": pod | _placement(launch)}
        replicated = {"name": "node", "template": {"spec": {"template": template}}}
        patch = {
            "manager": "gatehouse.dev/launcher",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
        }
        runtime = {"apiGroup": "trainer.kubeflow.org", "kind": launch.runtime_kind, "name": launch.runtime}
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": self.kind,
            "metadata": _metadata(job, launch),
            "spec": {
                "runtimeRef": runtime,
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


def job_end(job: dict[str, Any], success: str) -> JobEnd | None:
    """How a job ended; None if it has not ended. A condition with status False has not happened."""
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


def _placement(launch: ClusterLaunch) -> dict[str, Any]:
    """Fields of a pod's spec that say on which nodes it may run, and with which service account."""
    placed: dict[str, Any] = {"terminationGracePeriodSeconds": launch.grace_seconds}
    if launch.service_account:
        placed["serviceAccountName"] = launch.service_account
    if launch.pull_secrets:
        placed["imagePullSecrets"] = [{"name": name} for name in launch.pull_secrets]
    if launch.node_selector:
        placed["nodeSelector"] = dict(launch.node_selector)
    if launch.tolerations:
        tolerations = [toleration.model_dump() for toleration in launch.tolerations]
        placed["tolerations"] = [{name: value for name, value in row.items() if value} for row in tolerations]
    return placed


def _topology(topology: Topology, pods: dict[str, Any]) -> dict[str, Any]:
    """Fields of a pod's spec that place it relative to the other pods of its job, which the selector `pods` chooses."""
    if topology.place == "spread":
        constraint = {
            "maxSkew": 1,
            "topologyKey": topology.key,
            "whenUnsatisfiable": "DoNotSchedule" if topology.required else "ScheduleAnyway",
            "labelSelector": pods,
        }
        return {"topologySpreadConstraints": [constraint]}
    term = {"topologyKey": topology.key, "labelSelector": pods}
    if topology.required:
        return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    weighed = {"weight": 100, "podAffinityTerm": term}
    return {"affinity": {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [weighed]}}}
