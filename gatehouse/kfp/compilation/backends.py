"""Features of compiled specs that older KFP backends silently ignore."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.kfp.compilation.specification import Compiled, Task


@dataclass(frozen=True)
class Feature:
    """A feature of specs that backends support since some version.

    Attributes:
        name: Its name for people.
        since: The first version of the KFP backend that supports it.
        otherwise: What happens on an older backend.
        read_in: The place in the backend's source that reads it, first in release `since`.
        used: Where a spec uses it: paths of tasks, or "the pipeline".
    """

    name: str
    since: str
    otherwise: str
    read_in: str
    used: Callable[[Compiled], list[str]]


def _in_pods(*keys: str) -> Callable[[Compiled], list[str]]:
    return lambda compiled: [task.path for task in compiled.leaves if any(task.pod.get(key) for key in keys)]


def _in_tasks(found: Callable[[Task], Any]) -> Callable[[Compiled], list[str]]:
    return lambda compiled: [task.path for task in compiled.tasks if found(task)]


def _in_pipeline(found: Callable[[Compiled], Any]) -> Callable[[Compiled], list[str]]:
    return lambda compiled: ["the pipeline"] if found(compiled) else []


def _optional(kind: str) -> Callable[[Task], bool]:
    keys = [f"secret{kind}", f"configMap{kind}"]
    return lambda task: any(each.get("optional") for key in keys for each in task.pod.get(key, []))


_DRIVER = "backend/src/v2/driver/driver.go"
_PODS = "backend/src/v2/driver/k8s.go"
_ARGO = "backend/src/v2/compiler/argocompiler"

NEWEST = "2.17.0"
"""The newest backend release whose source was read."""
FEATURES = (
    Feature(
        "timeout of a task", "2.1.0", "a task that hangs runs for ever", _DRIVER, _in_pods("activeDeadlineSeconds")
    ),
    Feature("toleration", "2.1.0", "pods do not get onto tainted nodes", _DRIVER, _in_pods("tolerations")),
    Feature("labels and annotations of pods", "2.1.0", "Kueue does not see them", _DRIVER, _in_pods("podMetadata")),
    Feature(
        "pull secret and pull policy",
        "2.1.0",
        "images are not pulled",
        _DRIVER,
        _in_pods("imagePullSecret", "imagePullPolicy"),
    ),
    Feature("variable from a config map", "2.1.0", "addresses are missing", _DRIVER, _in_pods("configMapAsEnv")),
    Feature(
        "variable from a field of the pod", "2.1.0", "every run has the same id", _DRIVER, _in_pods("fieldPathAsEnv")
    ),
    Feature(
        "optional secret or config map as files",
        "2.2.0",
        "pods wait until it exists",
        _DRIVER,
        _in_tasks(_optional("AsVolume")),
    ),
    Feature(
        "at most so many tasks of a loop at once",
        "2.4.0",
        "all of them run at once",
        f"{_ARGO}/dag.go",
        _in_tasks(lambda task: task.body.get("iteratorPolicy")),
    ),
    Feature(
        "retries of a task",
        "2.4.1",
        "a lost pod ends the run",
        f"{_ARGO}/container.go",
        _in_tasks(lambda task: task.body.get("retryPolicy", {}).get("maxRetryCount")),
    ),
    Feature("affinity to nodes", "2.14.0", "pods run anywhere", _PODS, _in_pods("nodeAffinity")),
    Feature(
        "workspace of a run",
        "2.14.0",
        "its folder is missing",
        f"{_ARGO}/argo.go",
        _in_pipeline(lambda compiled: compiled.platform.get("pipelineConfig", {}).get("workspace")),
    ),
    Feature(
        "optional variable from a secret or a config map",
        "2.15.0",
        "pods wait until it exists with every key",
        _PODS,
        _in_tasks(_optional("AsEnv")),
    ),
    Feature("user and group of a pod", "2.16.0", "it runs as its image says", _PODS, _in_pods("securityContext")),
    Feature(
        "closed choices of a parameter",
        "2.16.0",
        "any other value reaches the tasks",
        "backend/src/apiserver/template/v2_template.go",
        _in_pipeline(lambda compiled: any(each.get("literals") for each in compiled.inputs.values())),
    ),
    Feature(
        "removal of ended runs' pods",
        "2.17.0",
        "they stay for ever",
        f"{_ARGO}/argo.go",
        _in_pipeline(lambda compiled: any("Ttl" in key for key in compiled.platform.get("pipelineConfig", {}))),
    ),
)
"""From the source of kubeflow/pipelines at its release tags from 2.0.5 to `NEWEST`."""


def unsupported(compiled: Compiled, backend: str) -> list[str]:
    """The features of a spec that a KFP backend version silently ignores, one sentence each.

    Args:
        compiled: The spec.
        backend: The version, as 2.15 or 2.15.0.

    Raises:
        ConfigurationError: if `backend` is no version of KFP 2.
    """
    version = _version(backend)
    found = []
    for feature in FEATURES:
        if version < _version(feature.since) and (where := feature.used(compiled)):
            shown = ", ".join(where[:3]) + (f" and {len(where) - 3} more" if len(where) > 3 else "")
            found.append(
                f"{feature.name}: needs KFP {feature.since}, and {backend} ignores it: {feature.otherwise} ({shown})"
            )
    return found


def newer(backend: str) -> str:
    """A warning if the backend version is newer than the releases that were read."""
    if _version(backend) <= _version(NEWEST):
        return ""
    return (
        f"nothing is known of KFP {backend}: releases up to {NEWEST} were read, and the spec is held against that one"
    )


def needed(compiled: Compiled) -> str:
    """The first version of the KFP backend that supports all features of a spec."""
    return max((each.since for each in FEATURES if each.used(compiled)), key=_version, default="2.0.5")


def _version(text: str) -> tuple[int, ...]:
    parts = text.split(".")
    if not (2 <= len(parts) <= 3 and all(part.isdecimal() for part in parts) and parts[0] == "2"):
        raise ConfigurationError(f"--backend-version: expected a version of KFP 2, as 2.15 or 2.15.0, found {text!r}")
    return (*map(int, parts), 0)[:3]
