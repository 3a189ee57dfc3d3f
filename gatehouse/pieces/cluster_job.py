"""A driver as an object of the task's own cluster: a RayJob of KubeRay, or an Indexed Job of one pod for each piece.

Its pods are like the task's pod, which this asks the cluster for: image, service account, variables, volumes and nodes.
"""

import os
import shlex
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from gatehouse.errors import ConfigurationError, PieceError
from gatehouse.launchers.kubernetes.api import ApiConflict, ApiTimeouts, KubernetesApi
from gatehouse.launchers.kubernetes.owned import JOB_DIGEST, LAUNCH, MANAGED, JobEnd, OwnedJob, job_end
from gatehouse.launchers.kubernetes.pods import Pod, failed, how_it_ended, image_problem, name_of, runs, unschedulable
from gatehouse.launchers.launcher import QUEUE_MINUTES, SCHEDULING_MINUTES, ClusterError, TrainingCancelledError
from gatehouse.pieces.engine import Engine
from gatehouse.pieces.local import ATTEMPTS, killed

RESOURCES = {"ray": ("RayJob", "ray.io", "v1", "rayjobs"), "indexed": ("Job", "batch", "v1", "jobs")}
"""By kind of engine: kind, group, version and plural of its object."""
_LABEL, _CONTAINER = "gatehouse.dev/pieces", "pieces"
_QUEUE = ("kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class")
_WORKERS, _MEMORY = 4, "4G"
_RAYLET, _HEAD = 1 << 30, {"cpu": "250m", "memory": "3Gi"}
_OBJECTS = {"object-store-memory": "100000000"}  # Rows never pass through it.
_DAY, _KEPT, _PULL_SECONDS = 86400, 600, 300.0
_NOT_COPIED = ("ARGO_", "KFP_", "METADATA_", "ML_PIPELINE_", "RAY_")


class ClusterJob:
    """The object of one stage, or of one call. Its name follows from both, and this task's pod owns it."""

    def __init__(self, engine: Engine, name: str, api: KubernetesApi | None = None) -> None:
        """Read the task's own pod.

        Raises ConfigurationError outside a pod, or without the package that the engine needs; ClusterError if the
        cluster refuses.
        """
        self.lasting = engine.kind == "ray"
        self.engine = engine.model_copy(
            update={"workers": engine.workers or _WORKERS, "memory": engine.memory or _MEMORY, "address": ""}
        )
        pod = os.environ.get("KFP_POD_NAME", "")
        if not pod:
            raise ConfigurationError(
                f"engine: kind {engine.kind} starts pods beside the task's own, expected a task of Kubeflow Pipelines, "
                "found no KFP_POD_NAME. Run on a cluster, name one that runs (engine.address), or take kind local."
            )
        try:
            self._ray = version("ray") if self.lasting else ""
        except PackageNotFoundError:
            raise ConfigurationError(
                "engine: kind ray starts pods of the task's image, which lacks the package ray. Give the task the "
                "image ray (docs/images.md)."
            ) from None
        self._api = api or KubernetesApi(ApiTimeouts())
        self._kind, group, release, plural = RESOURCES[engine.kind]
        self._core = f"/api/v1/namespaces/{self._api.namespace}"
        path = f"/apis/{group}/{release}/namespaces/{self._api.namespace}/{plural}"
        self._owned = OwnedJob(self._api, path, name, name)
        try:
            self._pod = self._api.get(f"{self._core}/pods/{pod}")
        except ApiConflict as conflict:
            raise ClusterError(f"The task's own pod {pod} is not in {self._api.namespace}: {conflict}.") from conflict
        self._waiting: float | None = None

    def find(self) -> str:
        """See `Place`; an object that has ended is removed."""
        job = self._owned.find()
        if job and self._end(job):
            self._owned.delete()
            job = self._owned.find()
        return str(job["metadata"]["annotations"][LAUNCH]) if job else ""

    def start(self, launch: str, command: Sequence[str], pieces: int) -> None:
        """See `Place`."""
        own = self._pod["metadata"].get("labels", {})
        metadata = {
            "name": self._owned.name,
            "namespace": self._api.namespace,
            "labels": MANAGED | {label: own[label] for label in _QUEUE if label in own},
            "annotations": {LAUNCH: launch, JOB_DIGEST: self._owned.digest},
        }
        spec = self._ray_job(command) if self.lasting else self._indexed_job(command, pieces)
        kind, group, release, _ = RESOURCES[self.engine.kind]
        try:
            self._owned.create({"apiVersion": f"{group}/{release}", "kind": kind, "metadata": metadata, "spec": spec})
        except ClusterError as error:
            if self.lasting and "HTTP 404" in str(error):
                raise ClusterError(
                    "engine: kind ray needs KubeRay, and this cluster does not serve rayjobs.ray.io. Install its "
                    f"operator, name a Ray cluster (engine.address), or take kind indexed.\n{error}"
                ) from error
            raise

    def has_ended(self) -> bool:
        """See `Place`."""
        try:
            job = self._owned.current()
        except TrainingCancelledError:
            raise self._failure("was deleted while it ran.") from None
        pods = self._api.list(f"{self._core}/pods", labelSelector=f"{_LABEL}={self._owned.name}")
        if end := self._end(job):
            if end.succeeded:
                return True
            if any("OOMKilled" in how_it_ended(pod) for pod in failed(pods)):
                raise PieceError(str(killed("for its memory", self.engine.memory_bytes)["message"]))
            ends = [f"pod {name_of(pod)}: {how_it_ended(pod)}" for pod in failed(pods)[:1]]
            raise self._failure(f"has failed: {' '.join([end.reason, end.message, *ends])}")
        self._require_start(job, pods)
        return False

    def remove(self) -> None:
        """See `Place`."""
        self._owned.delete()

    def _failure(self, how: str) -> PieceError:
        return PieceError(
            f"The {self._kind} {self._owned.name} of the pieces {how} Run again: pieces that were finished are kept."
        )

    def _end(self, job: dict[str, Any]) -> JobEnd | None:
        status = job.get("status", {})
        if not self.lasting:
            return job_end(job, "Complete")
        if (state := status.get("jobDeploymentStatus")) not in ("Complete", "Failed", "ValidationFailed"):
            return None
        well = state == "Complete" and status.get("jobStatus") == "SUCCEEDED"
        return JobEnd(well, status.get("reason") or status.get("jobStatus") or state, status.get("message", ""))

    def _require_start(self, job: dict[str, Any], pods: list[Pod]) -> None:
        """Raise PieceError if pods have been waiting too long to begin with pieces."""
        begun = job.get("status", {}).get("jobStatus") if self.lasting else any(map(runs, pods))
        if begun or job["spec"].get("suspend"):
            self._waiting = None
            return
        now = time.monotonic()
        self._waiting = self._waiting or now
        pull, hopeless = image_problem(pods)
        limit = _PULL_SECONDS if pull else 60.0 * (QUEUE_MINUTES if self._queued else SCHEDULING_MINUTES)
        if hopeless or now - self._waiting > limit:
            why = pull or unschedulable(pods) or f"{sum(map(runs, pods))} of {len(pods)} pods run"
            raise self._failure(f"did not start within {limit / 60:g} minutes: {why}. Ask for less (engine).")

    @property
    def _queued(self) -> bool:
        return _QUEUE[0] in self._pod["metadata"].get("labels", {})

    def _ray_job(self, command: Sequence[str]) -> dict[str, Any]:
        """The operator itself submits the driver (HTTPMode), also to a head that it has made anew."""
        engine = self.engine
        worker = {"cpu": str(engine.cpus), "memory": str(engine.memory_bytes + _RAYLET)}
        resources = {"num-cpus": str(engine.cpus), "memory": str(engine.memory_bytes)}
        group = dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), engine.workers)
        return {
            "entrypoint": shlex.join(command),
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": _KEPT,
            "backoffLimit": 2,
            "activeDeadlineSeconds": _DAY,
            "rayClusterSpec": {
                "rayVersion": self._ray,
                "authOptions": {"mode": "token"},
                "headGroupSpec": {
                    "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"} | _OBJECTS,
                    "template": self._template(_HEAD),
                },
                "workerGroupSpecs": [
                    group
                    | {
                        "groupName": "workers",
                        "rayStartParams": resources | _OBJECTS,
                        "template": self._template(worker),
                    }
                ],
            },
        }

    def _indexed_job(self, command: Sequence[str], pieces: int) -> dict[str, Any]:
        worker = {"cpu": str(self.engine.cpus), "memory": str(self.engine.memory_bytes)}
        template = self._template(worker, [*command, "--index=$(JOB_COMPLETION_INDEX)"])
        template["spec"]["restartPolicy"] = "Never"
        disruption = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        return {
            "completionMode": "Indexed",
            "completions": pieces,
            "parallelism": min(self.engine.workers, pieces),
            "backoffLimitPerIndex": ATTEMPTS - 1,
            "maxFailedIndexes": 0,
            "podFailurePolicy": {"rules": [disruption]},
            "ttlSecondsAfterFinished": _KEPT,
            "activeDeadlineSeconds": _DAY,
            "template": template,
        }

    def _template(self, resources: dict[str, str], command: Sequence[str] = ()) -> dict[str, Any]:
        """A pod like the task's own, with its own resources and command, and no rights on its node."""
        own = self._pod["spec"]
        (task,) = (container for container in own["containers"] if container["name"] == "main")
        volumes = {
            volume["name"]: volume
            for volume in own.get("volumes", [])
            if volume.keys() & {"persistentVolumeClaim", "secret", "configMap", "emptyDir", "csi", "ephemeral", "nfs"}
        }
        mounts = [
            mount
            for mount in task.get("volumeMounts", [])
            if mount["name"] in volumes and not mount["mountPath"].startswith(("/var/run/argo", "/argo"))
        ]
        variables = [entry for entry in task.get("env", []) if not entry["name"].startswith(_NOT_COPIED)]
        container: dict[str, Any] = {
            "name": _CONTAINER,
            "image": task["image"],
            "imagePullPolicy": task.get("imagePullPolicy", "IfNotPresent"),
            "env": [*variables, {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"}],
            "envFrom": task.get("envFrom", []),
            "resources": {"requests": resources, "limits": {"memory": resources["memory"]}},
            "volumeMounts": mounts,
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
                "runAsNonRoot": True,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
        }
        same = ["affinity", "imagePullSecrets", "nodeSelector", "priorityClassName", "securityContext"]
        same += ["serviceAccountName", "tolerations"]
        spec = {field: own[field] for field in same if own.get(field)} | {
            "containers": [container | ({"command": list(command)} if command else {})],
            "volumes": [volumes[name] for name in dict.fromkeys(mount["name"] for mount in mounts)],
        }
        annotations = {"sidecar.istio.io/inject": "false"}  # A mesh's sidecar would outlive the driver.
        return {"metadata": {"labels": MANAGED | {_LABEL: self._owned.name}, "annotations": annotations}, "spec": spec}
