"""PyTorchJob of the Kubeflow Training Operator v1, built with the models of kubeflow-training."""

from typing import Any

from gatehouse.launchers.kubernetes.operator import MANAGED, ClusterJob, JobEnd, condition
from gatehouse.launchers.kubernetes.pod_template import environment, placement, resources, volumes
from gatehouse.launchers.spec import PyTorchJobLaunch

_SCHEDULERS = {"volcano": "volcano", "coscheduling": "scheduler-plugins-scheduler"}


class PyTorchJobs:
    """The operator of PyTorchJobs."""

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
        built = models.KubeflowOrgV1PyTorchJob(
            api_version="kubeflow.org/v1",
            kind=self.kind,
            metadata=models.V1ObjectMeta(
                name=job.name,
                namespace=job.namespace,
                labels=MANAGED | self._queue() | launch.labels,
                annotations=job.annotations | launch.annotations,
            ),
            spec=models.KubeflowOrgV1PyTorchJobSpec(
                nproc_per_node=str(job.processes),
                pytorch_replica_specs=self._replicas(job),
                elastic_policy=self._elastic(job),
                run_policy=self._run_policy(job),
            ),
        )
        body: dict[str, Any] = ApiClient().sanitize_for_serialization(built)
        return body

    def _queue(self) -> dict[str, str]:
        labels = {
            "kueue.x-k8s.io/queue-name": self._launch.queue,
            "kueue.x-k8s.io/priority-class": self._launch.queue_priority,
        }
        return {name: value for name, value in labels.items() if value}

    def _replicas(self, job: ClusterJob) -> dict[str, Any]:
        from kubeflow.training import models

        def replica(count: int) -> Any:
            return models.KubeflowOrgV1ReplicaSpec(
                replicas=count, restart_policy=self._launch.restart, template=self._template(job)
            )

        if self._launch.elastic:
            return {"Worker": replica(self._launch.nodes)}
        workers = {"Worker": replica(self._launch.nodes - 1)} if self._launch.nodes > 1 else {}
        return {"Master": replica(1), **workers}

    def _template(self, job: ClusterJob) -> dict[str, Any]:
        launch = self._launch
        own, mounts = volumes(launch)
        container = {
            "name": self.container,
            "image": job.image,
            "command": list(job.command),
            "env": environment(launch, job.env),
            "resources": resources(launch),
            "volumeMounts": mounts,
        }
        placed = placement(launch, self.pod_labels(job.name), constraints=True)
        spec = {"containers": [container], "volumes": own} | placed
        # The operator checks the job's own deadline only when a pod changes. At this deadline the kubelet ends a pod.
        spec["activeDeadlineSeconds"] = job.deadline_seconds
        if launch.priority:
            spec["priorityClassName"] = launch.priority
        if launch.gang:
            spec["schedulerName"] = _SCHEDULERS[launch.gang]
        # A mesh's sidecar would outlive the training and keep the job from ending.
        annotations = {"sidecar.istio.io/inject": "false"} | launch.annotations
        return {"metadata": {"labels": MANAGED | launch.labels, "annotations": annotations}, "spec": spec}

    def _elastic(self, job: ClusterJob) -> Any:
        from kubeflow.training import models

        elastic = self._launch.elastic
        if elastic is None:
            return None
        return models.KubeflowOrgV1ElasticPolicy(
            min_replicas=elastic.min_nodes,
            max_replicas=elastic.max_nodes,
            max_restarts=elastic.max_restarts,
            rdzv_backend="c10d",
            rdzv_id=job.launch,
        )

    def _run_policy(self, job: ClusterJob) -> Any:
        from kubeflow.training import models

        policy = self._launch.run_policy
        return models.KubeflowOrgV1RunPolicy(
            clean_pod_policy=policy.clean_pods,
            backoff_limit=policy.backoff_limit,
            active_deadline_seconds=job.deadline_seconds,
            ttl_seconds_after_finished=policy.keep_seconds,
            suspend=self._launch.suspend,
            scheduling_policy=self._gang(),
        )

    def _gang(self) -> Any:
        from kubeflow.training import models

        launch = self._launch
        if not launch.gang:
            return None
        return models.KubeflowOrgV1SchedulingPolicy(
            min_available=launch.min_pods,
            queue=launch.gang_queue or None,
            priority_class=launch.priority or None,
            schedule_timeout_seconds=round(launch.scheduling_minutes * 60) if launch.gang == "coscheduling" else None,
        )

    def end(self, found: dict[str, Any]) -> JobEnd | None:
        """How the job ended, by its conditions `Succeeded` and `Failed`."""
        for kind in ("Failed", "Succeeded"):
            if held := condition(found, kind):
                return JobEnd(kind == "Succeeded", held.get("reason", ""), held.get("message", ""))
        return None
