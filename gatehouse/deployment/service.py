"""A service in a cluster: applies its objects, waits until its pods answer with a version, and says why they do not."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from gatehouse.deployment.objects import PORT, SERVICE, TEMPLATE, Object, container_of
from gatehouse.errors import LauncherError
from gatehouse.launchers.kubernetes import pods as pod_status
from gatehouse.launchers.kubernetes.api import FIELD_MANAGER, ApiConflict, KubernetesApi
from gatehouse.launchers.kubernetes.pods import Pod
from gatehouse.launchers.launcher import TAIL_LINES, ClusterError, last_lines

logger = logging.getLogger(__name__)

DEPLOYMENT, PREVIOUS = "gatehouse.dev/deployment", "gatehouse.dev/previous"
"""Annotations of the object that makes the pods: references of its deployment, and of the one before it."""
_PLACES = {
    "Service": "/api/v1/namespaces/{}/services/{}",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments/{}",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/namespaces/{}/horizontalpodautoscalers/{}",
    "InferenceService": "/apis/serving.kserve.io/v1beta1/namespaces/{}/inferenceservices/{}",
}
_KINDS = {"deployment": "Deployment", "kserve": "InferenceService"}
_CRASHES = 3
_PATIENCE = 120.0
"""Seconds that an image may fail to be pulled, and that a cluster may refuse to make pods."""
Cause = Literal["create", "image", "schedule", "memory", "crash", "probe", "version"]


class DeploymentError(LauncherError):
    """The pods of a deployment do not answer with the version that was asked for; `cause` says what is wrong."""

    permanent = True

    def __init__(self, message: str, cause: Cause) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True)
class Trouble:
    """What keeps a service from answering, how many seconds it may last, and a pod whose log says more."""

    cause: Cause
    message: str
    patience: float = float("inf")
    pod: Pod | None = None


class ClusterService:
    """The objects of one service."""

    def __init__(self, api: KubernetesApi, namespace: str, name: str, kind: str) -> None:
        """Prepare to look at a service; `kind` is deployment or kserve."""
        self._api, self.namespace, self.name, self._kind = api, namespace or api.namespace, name, kind
        self._pods = f"/api/v1/namespaces/{self.namespace}/pods"

    def get(self, kind: str = "") -> Object | None:
        """An object of the service, by default the one that makes the pods; None if there is none."""
        try:
            return self._api.get(self._path(kind or _KINDS[self._kind]))
        except ApiConflict:
            return None

    def apply(
        self, objects: Sequence[Object], about: dict[str, str], force: bool = False, dry_run: bool = False
    ) -> list[str]:
        """Apply objects, with annotations of the one that makes the pods; the kinds that were changed.

        Nothing is changed if the cluster would refuse one of them. Raises ClusterError if another manager set a field,
        unless `force` takes it, or the cluster does not know the kind or the namespace.
        """
        changed: list[str] = []
        for dry in (True, False)[: 1 if dry_run else 2]:
            for body in objects:
                kind, metadata = body["kind"], body["metadata"] | {"namespace": self.namespace}
                if kind in _KINDS.values():
                    metadata["annotations"] = metadata.get("annotations", {}) | about
                before = self.get(kind)
                try:
                    path, whole = self._path(kind), body | {"metadata": metadata}
                    after = self._api.apply(path, whole, force=force, dry_run=dry)
                except ApiConflict as conflict:
                    raise ClusterError(_refusal(kind, self.name, conflict)) from conflict
                versions = [thing["metadata"].get("resourceVersion") for thing in (before or {"metadata": {}}, after)]
                if not dry and versions[0] != versions[1]:
                    changed.append(kind)
        kinds, autoscaler = {body["kind"] for body in objects}, "HorizontalPodAutoscaler"
        stale = self.get(autoscaler) if autoscaler not in kinds and not dry_run else None
        if stale and (stale["metadata"].get("labels") or {}).get(SERVICE) == self.name:
            self._api.delete(self._path(autoscaler), stale["metadata"]["uid"])
            changed.append(autoscaler)
        return changed

    def await_version(
        self, model: str, expected: Callable[[], int], template: str, replicas: int, minutes: float
    ) -> None:
        """Return when all pods are of a template, are ready, and answer with the expected version of a model.

        `expected` is asked at each look, as an alias may move. Raises DeploymentError if that does not happen in time,
        or cannot any more.
        """
        began, since, cause, message = time.monotonic(), 0.0, "", ""
        while trouble := self._trouble(model, expected, template, replicas):
            now = time.monotonic()
            if trouble.cause != cause:
                cause, since = trouble.cause, now
            # The node's words below it change at each look, from one reason of the same trouble to another.
            if (line := trouble.message.splitlines()[0]) != message:
                message = line
                logger.info("%s: %s", self.name, message)
            if now - began >= minutes * 60 or now - since >= trouble.patience:
                why = f"The service {self.name} does not answer with {model}:{expected()}: {trouble.message}"
                raise DeploymentError(f"{why}\n{self._tail(trouble.pod)}".strip(), trouble.cause)
            time.sleep(self._api.timeouts.resync)

    def _trouble(self, model: str, expected: Callable[[], int], template: str, replicas: int) -> Trouble | None:
        """What the service lacks now; None if it answers."""
        listed = self._api.list(self._pods, labelSelector=f"{SERVICE}={self.name}")
        alive = [pod for pod in listed if "deletionTimestamp" not in pod["metadata"]]
        alive = [pod for pod in alive if pod["status"].get("phase") not in ("Failed", "Succeeded")]
        own = [pod for pod in alive if pod["metadata"]["labels"].get(TEMPLATE) == template]
        refused = self._refused() if not own or self._kind == "kserve" else ""
        if not own:
            return Trouble("create", refused or "its pods are not made yet.", _PATIENCE if refused else float("inf"))
        if failing := _failing(own):
            return failing
        if waiting := [pod for pod in own if not _ready(pod)]:
            message = f"{len(own) - len(waiting)} of {replicas} pods are ready. {self._warning(waiting[0])}"
            return Trouble("probe", message.strip(), pod=waiting[0])
        number = str(expected())
        for pod in own:
            if (answer := self._answer(pod, model)) != number:
                advice = "`gatehouse models rollback` takes a version back in the ledger."
                return Trouble("version", f"a pod answers with version {answer or 'none'}. {advice}", pod=pod)
        if len(own) < max(replicas, len(alive)):
            return Trouble("create", f"{len(own)} of {max(replicas, len(alive))} pods are new.")
        return Trouble("create", refused) if refused else None

    def _refused(self) -> str:
        """What the object that makes the pods says against itself; empty if it says nothing."""
        conditions = ((self.get() or {}).get("status") or {}).get("conditions") or []
        wrong = [row for row in conditions if (row["status"] == "True") == (row["type"] == "ReplicaFailure")]
        wrong = [row for row in wrong if row["type"] in ("ReplicaFailure", "Ready", "PredictorReady")]
        return " ".join(f"{row.get('reason', '')}: {row.get('message', '')}" for row in wrong)

    def _answer(self, pod: Pod, model: str) -> str:
        """The version with which a pod answers, from inside the cluster directly; empty if it does not answer."""
        path, body = f"/v2/models/{model}/ready", dict[str, Any]()
        with suppress(Exception):  # It is asked again.
            if self._api.in_cluster:
                import requests

                address = pod["status"]["podIP"]
                host = f"[{address}]" if ":" in address else address
                body = requests.get(f"http://{host}:{PORT}{path}", timeout=10).json()
            else:
                place = f"{self._pods}/{pod_status.name_of(pod)}:{PORT}/proxy{path}"
                body = json.loads(b"".join(self._api.lines(place, {}, silence=10)))
        return str(body.get("version", ""))

    def _warning(self, pod: Pod) -> str:
        """The last warning about a pod, such as that of a probe; empty if there is none."""
        with suppress(LauncherError, ApiConflict):
            about = f"involvedObject.name={pod_status.name_of(pod)}"
            for event in reversed(self._api.list(f"/api/v1/namespaces/{self.namespace}/events", fieldSelector=about)):
                if event.get("type") == "Warning":
                    return f"The cluster says: {event.get('reason')}: {event.get('message')}"
        return ""

    def _tail(self, pod: Pod | None) -> str:
        """The last lines of a pod, of its container before if that one has ended; empty if there are none."""
        name = pod_status.name_of(pod) if pod else ""
        query = {"container": container_of(self._kind), "tailLines": TAIL_LINES}
        query |= {"previous": "true"} if pod and pod_status.restarts(pod) and not _ready(pod) else {}
        # The node may be lost.
        with suppress(LauncherError, ApiConflict), self._api.cleaning_up():
            lines = self._api.text(f"{self._pods}/{name}/log", query).splitlines() if name else []
            return last_lines(lines, f"the log of pod {name}") if lines else ""
        return ""

    def _path(self, kind: str) -> str:
        return _PLACES[kind].format(self.namespace, self.name)


def _refusal(kind: str, name: str, conflict: ApiConflict) -> str:
    if conflict.status == 404:
        return (
            f"The cluster knows no {kind}, or not the namespace: {conflict.message}. An InferenceService needs KServe; "
            "the namespace is `deploy.namespace` of the profile, else its `namespace`."
        )
    return (
        f"{kind} {name}: expected fields that {FIELD_MANAGER} alone sets, found others of another manager: "
        f"{conflict.message}\nLet that one give them up, or take them with --force."
    )


def _ready(pod: Pod) -> bool:
    conditions = pod["status"].get("conditions") or []
    return any((row["type"], row["status"]) == ("Ready", "True") for row in conditions)


def _failing(pods: Sequence[Pod]) -> Trouble | None:
    """What keeps a pod from running; None if nothing does."""
    image, hopeless = pod_status.image_problem(pods)
    if image:
        message = f"its image cannot be pulled.\nThe node says: {image}\nCheck `image` and `image_pull_secrets`."
        return Trouble("image", message, 0.0 if hopeless else _PATIENCE)
    if unscheduled := pod_status.unschedulable(pods):
        message = f"no node takes its pods.\nThe scheduler says: {unscheduled}\nAsk for less (cpu, memory)."
        return Trouble("schedule", message)
    for pod in pods:
        states = [
            row.get(at) or {} for row in pod["status"].get("containerStatuses", ()) for at in ("state", "lastState")
        ]
        ends = [state["terminated"] for state in states if "terminated" in state]
        if not ends or _ready(pod):
            continue
        patience = 0.0 if pod_status.restarts(pod) >= _CRASHES else float("inf")
        if any(end.get("reason") == "OOMKilled" for end in ends):
            return Trouble("memory", "a pod ran out of memory (OOMKilled). Raise `memory`.", patience, pod)
        return Trouble("crash", f"a pod ended with exit code {ends[0].get('exitCode')}.", patience, pod)
    return None
