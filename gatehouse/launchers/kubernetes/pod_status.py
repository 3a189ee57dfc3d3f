"""Reads the status of a job's pods: which of them run, why others do not run, and which of them failed first."""

from collections.abc import Iterable, Iterator
from typing import Any

from gatehouse.launchers.launcher import HUNG, HUNG_CODE, PREEMPTED_CODE

_HOPELESS_IMAGE = ("InvalidImageName", "ErrImageNeverPull")
_IMAGE = (*_HOPELESS_IMAGE, "ErrImagePull", "ImagePullBackOff", "ImageInspectError", "RegistryUnavailable")
_EVICTED = ("Evicted", "Preempting", "Preempted", "NodeLost", "NodeShutdown", "Terminated", "Shutdown")

Pod = dict[str, Any]


def runs(pod: Pod) -> bool:
    """Whether the pod has been started, and has not failed."""
    return _status(pod).get("phase") in ("Running", "Succeeded")


def started_at(pods: Iterable[Pod]) -> str:
    """When the last of the running pods was started (RFC 3339); empty if none runs."""
    states = [state.get("running", {}) for pod in pods for state in _states(pod)]
    return max((state["startedAt"] for state in states if "startedAt" in state), default="")


def unschedulable(pods: Iterable[Pod]) -> str:
    """The scheduler's message about a pod without a node; empty if there is none."""
    for pod in pods:
        for condition in _status(pod).get("conditions", []):
            if (condition["type"], condition["status"]) == ("PodScheduled", "False"):
                return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def image_problem(pods: Iterable[Pod]) -> tuple[str, bool]:
    """Why an image cannot be pulled, and whether retries are useless; an empty text if nothing is wrong."""
    for pod in pods:
        for state in _states(pod):
            waiting = state.get("waiting", {})
            if (reason := waiting.get("reason", "")) in _IMAGE:
                return f"{reason}: {waiting.get('message', '')}", reason in _HOPELESS_IMAGE
    return "", False


def eviction(pod: Pod) -> str:
    """Why the pod was removed from its node (eviction, preemption, a lost node); empty if it was not."""
    status = _status(pod)
    if status.get("reason") in _EVICTED:
        return f"{status['reason']}: {status.get('message', '')}"
    for condition in status.get("conditions", []):
        if (condition["type"], condition["status"]) == ("DisruptionTarget", "True"):
            return f"{condition.get('reason', '')}: {condition.get('message', '')}"
    return ""


def preemption(pods: list[Pod]) -> str:
    """A sentence about the first of the failed `pods`, if it was told to end; empty if it failed by itself."""
    first = pods[0]
    return f"Pod {name_of(first)} was told to end by a SIGTERM." if exit_code(first) == PREEMPTED_CODE else ""


def failed(pods: Iterable[Pod]) -> list[Pod]:
    """The pods that failed, in the order in which their containers ended."""
    found = [pod for pod in pods if _status(pod).get("phase") == "Failed" or exit_code(pod)]
    return sorted(found, key=lambda pod: max((each.get("finishedAt", "") for each in _ends(pod)), default=""))


def exit_code(pod: Pod) -> int:
    """The exit code of the pod's container; 0 also if it has not ended or was not started."""
    return next((end["exitCode"] for end in _ends(pod) if end.get("exitCode")), 0)


def restarts(pod: Pod) -> int:
    """How often the node has started the pod's containers again."""
    return max((each.get("restartCount", 0) for each in _status(pod).get("containerStatuses", [])), default=0)


def how_it_ended(pod: Pod) -> str:
    """How a failed pod ended, in a sentence that is the same for the same cause."""
    reasons = [end.get("reason", "") for end in _ends(pod)]
    if "OOMKilled" in reasons:
        return (
            "a worker ran out of memory (OOMKilled). Raise launch.resources.memory, or lower training.data.batch_size."
        )
    code = exit_code(pod)
    if code == HUNG_CODE:
        return HUNG
    return f"a pod ended with exit code {code}, expected 0." if code else "a pod failed without an exit code."


def name_of(pod: Pod) -> str:
    """The pod's name."""
    return str(pod["metadata"]["name"])


def _status(pod: Pod) -> dict[str, Any]:
    status: dict[str, Any] = pod.get("status", {})
    return status


def _states(pod: Pod) -> Iterator[dict[str, Any]]:
    status = _status(pod)
    for container in [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]:
        yield container.get("state", {})


def _ends(pod: Pod) -> Iterator[dict[str, Any]]:
    for state in _states(pod):
        if "terminated" in state:
            yield state["terminated"]
