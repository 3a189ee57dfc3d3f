"""The training operators: the object of a job for each kind, who owns it, and how it ended."""

import logging
import os
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kubeflow import training
from kubeflow_trainer_api import models
from kubeflow_trainer_api.models import IoK8sApiCoreV1EnvVar as EnvVar
from kubeflow_trainer_api.models import IoK8sApiCoreV1Volume as Volume
from kubeflow_trainer_api.models import IoK8sApiCoreV1VolumeMount as VolumeMount
from kubeflow_trainer_api.models import IoK8sApimachineryPkgApiResourceQuantity as Quantity
from kubeflow_trainer_api.models import IoK8sApimachineryPkgApisMetaV1ObjectMeta as ObjectMeta

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
        container = models.IoK8sApiCoreV1Container(
            name=self.container,
            image=job.image,
            command=list(job.command),
            env=_environment(launch, job.env),
            resources=_resources(launch),
            volume_mounts=mounts,
        )
        pod = models.IoK8sApiCoreV1PodSpec(
            containers=[container],
            volumes=volumes,
            # The operator checks the job's own deadline only when a pod changes. At this one the kubelet ends a pod.
            active_deadline_seconds=job.deadline_seconds,
            priority_class_name=launch.priority or None,
            scheduler_name=_SCHEDULERS.get(launch.gang),
            **_placement(launch),
            **(_topology(launch.topology, {self.label: job.name}) if launch.topology else {}),
        )
        template = models.IoK8sApiCoreV1PodTemplateSpec(metadata=_pod_metadata(launch), spec=pod).to_dict()

        def replica(count: int) -> training.KubeflowOrgV1ReplicaSpec:
            return training.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy=launch.restart, template=template)

        run_policy = training.KubeflowOrgV1RunPolicy(
            clean_pod_policy=policy.clean_pods,
            backoff_limit=policy.backoff_limit,
            active_deadline_seconds=job.deadline_seconds,
            ttl_seconds_after_finished=policy.keep_seconds,
        )
        if launch.gang:
            run_policy.scheduling_policy = training.KubeflowOrgV1SchedulingPolicy(
                min_available=launch.needed_nodes, priority_class=launch.priority or None
            )
        spec = training.KubeflowOrgV1PyTorchJobSpec(
            nproc_per_node=str(job.processes),
            pytorch_replica_specs={"Master": replica(1)}
            | ({"Worker": replica(launch.nodes - 1)} if launch.nodes > 1 else {}),
            run_policy=run_policy,
        )
        if launch.min_nodes:
            spec.elastic_policy = training.KubeflowOrgV1ElasticPolicy(
                min_replicas=launch.min_nodes,
                max_replicas=launch.nodes,
                rdzv_backend="c10d",
                rdzv_host=f"{job.name}-master-0",
            )
        body = training.KubeflowOrgV1PyTorchJob(
            api_version="kubeflow.org/v1", kind=self.kind, metadata=_metadata(job, launch).to_dict(), spec=spec
        )
        return dict(training.ApiClient().sanitize_for_serialization(body))


class TrainJobs:
    """TrainJobs of Kubeflow Trainer v2: the job names a runtime, and patches its pods.

    A TrainJob has a fixed number of nodes. An elastic one has the most nodes, and the rendezvous of its pods is content
    with fewer; the object ends only if all pods have ended well, so the launcher goes by the report of the pods.
    """

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
        pod = models.TrainerV1alpha1PodSpecPatch(
            volumes=volumes,
            containers=[models.TrainerV1alpha1ContainerPatch(name=self.container, volume_mounts=mounts)],
            **_placement(launch),
        )
        template = models.TrainerV1alpha1PodTemplatePatch(metadata=_pod_metadata(launch), spec=pod)
        job_patch = models.TrainerV1alpha1JobTemplatePatch(spec=models.TrainerV1alpha1JobSpecPatch(template=template))
        replicated = models.TrainerV1alpha1ReplicatedJobPatch(name="node", template=job_patch)
        jobs = models.TrainerV1alpha1JobSetSpecPatch(replicated_jobs=[replicated])
        trainer = models.TrainerV1alpha1Trainer(
            image=job.image,
            command=list(job.command),
            num_nodes=launch.nodes,
            num_proc_per_node=job.processes,
            resources_per_node=_resources(launch),
            env=_environment(launch, job.env),
        )
        patch = models.TrainerV1alpha1RuntimePatch(
            manager="gatehouse.dev/launcher",
            training_runtime_spec=models.TrainerV1alpha1TrainingRuntimeSpecPatch(
                template=models.TrainerV1alpha1JobSetTemplatePatch(spec=jobs)
            ),
        )
        runtime = models.TrainerV1alpha1RuntimeRef(
            api_group="trainer.kubeflow.org", kind=launch.runtime_kind, name=launch.runtime
        )
        return models.TrainerV1alpha1TrainJob(
            api_version="trainer.kubeflow.org/v1alpha1",
            kind=self.kind,
            metadata=_metadata(job, launch),
            spec=models.TrainerV1alpha1TrainJobSpec(
                runtime_ref=runtime,
                active_deadline_seconds=job.deadline_seconds,
                trainer=trainer,
                runtime_patches=[patch],
            ),
        ).to_dict()


def job_end(job: dict[str, Any], success: str) -> JobEnd | None:
    """How a job ended; None if it has not ended. A condition with status False has not happened."""
    conditions = job.get("status", {}).get("conditions") or []
    for kind in ("Failed", success):
        for condition in conditions:
            if condition["type"] == kind and condition["status"] == "True":
                return JobEnd(kind == success, condition.get("reason", ""), condition.get("message", ""))
    return None


def _metadata(job: ClusterJob, launch: ClusterLaunch) -> ObjectMeta:
    """Metadata of the object; by its annotations a launcher finds the job again and checks what it trains."""
    queue = {"kueue.x-k8s.io/queue-name": launch.queue, "kueue.x-k8s.io/priority-class": launch.queue_priority}
    return ObjectMeta(
        name=job.name,
        namespace=job.namespace,
        labels=MANAGED | {name: value for name, value in queue.items() if value} | launch.labels,
        annotations={LAUNCH: job.launch, JOB_DIGEST: job.digest} | launch.annotations,
    )


def _pod_metadata(launch: ClusterLaunch) -> ObjectMeta:
    # A mesh's sidecar would outlive the training and keep the job from ending.
    annotations = {"sidecar.istio.io/inject": "false"} | launch.annotations
    return ObjectMeta(labels=MANAGED | launch.labels, annotations=annotations)


def _environment(launch: ClusterLaunch, own: dict[str, str]) -> list[EnvVar]:
    """Environment of the container, in a fixed order; `launch.env` overrides all other sources."""
    variables = own | {"TMPDIR": WORK, "GATEHOUSE_CACHE": f"{WORK}/cache"}
    if launch.nodes > 1:
        variables["GLOO_SOCKET_IFNAME"] = "eth0"
    environment = [EnvVar(name=name, value=value) for name, value in sorted((variables | launch.env).items())]
    for secret in launch.secrets:
        if secret.variable not in launch.env:
            key: dict[str, Any] = {"name": secret.name, "key": secret.key, "optional": secret.optional}
            source = models.IoK8sApiCoreV1EnvVarSource()
            if secret.source == "secret":
                source.secret_key_ref = models.IoK8sApiCoreV1SecretKeySelector(**key)
            else:
                source.config_map_key_ref = models.IoK8sApiCoreV1ConfigMapKeySelector(**key)
            environment.append(EnvVar(name=secret.variable, value_from=source))
    return environment


def _resources(launch: ClusterLaunch) -> models.IoK8sApiCoreV1ResourceRequirements:
    """Requests and limits of one pod. They are equal: such pods are evicted last."""
    resources = launch.resources
    amounts = {"cpu": resources.cpu, "memory": resources.memory}
    if resources.gpus:
        amounts[resources.gpu] = str(resources.gpus)
    quantities = {name: Quantity(amount) for name, amount in amounts.items()}
    return models.IoK8sApiCoreV1ResourceRequirements(requests=quantities, limits=quantities)


def _volumes(
    launch: ClusterLaunch,
) -> tuple[list[Volume], list[VolumeMount]]:
    """Volumes of the pod, and where its container mounts them."""
    shared = models.IoK8sApiCoreV1EmptyDirVolumeSource(medium="Memory", size_limit=Quantity(launch.shared_memory))
    volumes = [
        Volume(name="shm", empty_dir=shared),
        Volume(name="work", empty_dir=models.IoK8sApiCoreV1EmptyDirVolumeSource()),
    ]
    mounts = [
        VolumeMount(name="shm", mount_path="/dev/shm"),
        VolumeMount(name="work", mount_path=WORK),
    ]
    for number, volume in enumerate(launch.volumes):
        name = f"volume-{number}"
        claim = models.IoK8sApiCoreV1PersistentVolumeClaimVolumeSource(
            claim_name=volume.claim, read_only=volume.read_only
        )
        volumes.append(Volume(name=name, persistent_volume_claim=claim))
        mounts.append(VolumeMount(name=name, mount_path=volume.path, read_only=volume.read_only))
    return volumes, mounts


def _placement(launch: ClusterLaunch) -> dict[str, Any]:
    """Fields of a pod's spec that say on which nodes it may run, and with which service account."""
    secrets = [models.IoK8sApiCoreV1LocalObjectReference(name=name) for name in launch.pull_secrets]
    tolerations = [
        models.IoK8sApiCoreV1Toleration(
            key=row.key, operator=row.operator, value=row.value or None, effect=row.effect or None
        )
        for row in launch.tolerations
    ]
    return {
        "termination_grace_period_seconds": launch.grace_seconds,
        "service_account_name": launch.service_account or None,
        "image_pull_secrets": secrets or None,
        "node_selector": dict(launch.node_selector) or None,
        "tolerations": tolerations or None,
    }


def _topology(topology: Topology, labels: dict[str, str]) -> dict[str, Any]:
    """Fields of a pod's spec that place it relative to the other pods of its job, which have the `labels`."""
    pods = models.IoK8sApimachineryPkgApisMetaV1LabelSelector(match_labels=labels)
    if topology.place == "spread":
        constraint = models.IoK8sApiCoreV1TopologySpreadConstraint(
            max_skew=1,
            topology_key=topology.key,
            when_unsatisfiable="DoNotSchedule" if topology.required else "ScheduleAnyway",
            label_selector=pods,
        )
        return {"topology_spread_constraints": [constraint]}
    term = models.IoK8sApiCoreV1PodAffinityTerm(topology_key=topology.key, label_selector=pods)
    near = models.IoK8sApiCoreV1PodAffinity()
    if topology.required:
        near.required_during_scheduling_ignored_during_execution = [term]
    else:
        weighed = models.IoK8sApiCoreV1WeightedPodAffinityTerm(weight=100, pod_affinity_term=term)
        near.preferred_during_scheduling_ignored_during_execution = [weighed]
    return {"affinity": models.IoK8sApiCoreV1Affinity(pod_affinity=near)}
