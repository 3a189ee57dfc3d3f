"""The training operators: the object of a job for each kind."""

from dataclasses import dataclass
from typing import Any, Protocol

from kubeflow import training
from kubeflow_trainer_api import models
from kubeflow_trainer_api.models import IoK8sApiCoreV1EnvVar as EnvVar
from kubeflow_trainer_api.models import IoK8sApiCoreV1Volume as Volume
from kubeflow_trainer_api.models import IoK8sApiCoreV1VolumeMount as VolumeMount
from kubeflow_trainer_api.models import IoK8sApimachineryPkgApiResourceQuantity as Quantity
from kubeflow_trainer_api.models import IoK8sApimachineryPkgApisMetaV1ObjectMeta as ObjectMeta

from gatehouse.launchers.kubernetes.owned import JOB_DIGEST, LAUNCH, MANAGED
from gatehouse.launchers.spec import ClusterLaunch, PyTorchJobLaunch, TrainJobLaunch

WORK = "/var/lib/gatehouse"
_RESTART = "ExitCode"
"""A pod starts again where it ends with 128 or more, as after a SIGTERM."""
_KEPT_SECONDS = 3600
"""How long a PyTorchJob stays that its launcher did not remove."""
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
        launch = self._launch
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
        )
        template = models.IoK8sApiCoreV1PodTemplateSpec(metadata=_pod_metadata(launch), spec=pod).to_dict()

        def replica(count: int) -> training.KubeflowOrgV1ReplicaSpec:
            return training.KubeflowOrgV1ReplicaSpec(replicas=count, restart_policy=_RESTART, template=template)

        run_policy = training.KubeflowOrgV1RunPolicy(
            clean_pod_policy="Running",
            backoff_limit=launch.run_policy.backoff_limit,
            active_deadline_seconds=job.deadline_seconds,
            ttl_seconds_after_finished=_KEPT_SECONDS,
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
        """The TrainJob, without the settings that belong to its runtime (restarts, gang, priority class)."""
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
