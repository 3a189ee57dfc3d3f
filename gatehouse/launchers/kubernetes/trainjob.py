"""TrainJob of Kubeflow Trainer v2: the job names a runtime, and patches its pods."""

from typing import Any

from gatehouse.launchers.kubernetes.operator import MANAGED, ClusterJob, JobEnd, condition
from gatehouse.launchers.kubernetes.pod_template import environment, placement, resources, volumes
from gatehouse.launchers.spec import TrainJobLaunch

_REPLICATED_JOB = "node"


class TrainJobs:
    """The operator of TrainJobs."""

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
        queue = {
            "kueue.x-k8s.io/queue-name": launch.queue,
            "kueue.x-k8s.io/priority-class": launch.queue_priority,
        }
        labels = MANAGED | {name: value for name, value in queue.items() if value} | launch.labels
        return {
            "apiVersion": "trainer.kubeflow.org/v1alpha1",
            "kind": self.kind,
            "metadata": {
                "name": job.name,
                "namespace": job.namespace,
                "labels": labels,
                "annotations": job.annotations | launch.annotations,
            },
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
                    "resourcesPerNode": resources(launch),
                    "env": environment(launch, job.env),
                },
                "runtimePatches": [self._patch(job)],
            },
        }

    def _patch(self, job: ClusterJob) -> dict[str, Any]:
        launch = self._launch
        own, mounts = volumes(launch)
        spec = placement(launch, self.pod_labels(job.name), constraints=False)
        pod = {
            "metadata": {
                "labels": MANAGED | launch.labels,
                "annotations": {"sidecar.istio.io/inject": "false"} | launch.annotations,
            },
            "spec": {"volumes": own, "containers": [{"name": self.container, "volumeMounts": mounts}]} | spec,
        }
        replicated = {"name": _REPLICATED_JOB, "template": {"spec": {"template": pod}}}
        return {
            "manager": "gatehouse.dev/launcher",
            "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [replicated]}}},
        }

    def end(self, found: dict[str, Any]) -> JobEnd | None:
        """How the job ended, by its conditions `Complete` and `Failed`."""
        for kind in ("Failed", "Complete"):
            if held := condition(found, kind):
                return JobEnd(kind == "Complete", held.get("reason", ""), held.get("message", ""))
        return None
