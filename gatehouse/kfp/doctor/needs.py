"""What a project needs of Kubernetes on a platform: kinds of objects, rights, and named objects."""

from collections.abc import Iterator
from dataclasses import dataclass

from gatehouse.launchers.spec import CREDENTIAL_KEYS, SETTINGS_KEYS, LocalLaunch
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project

_JOBS = {"pytorchjob": ("kubeflow.org", "pytorchjobs"), "trainjob": ("trainer.kubeflow.org", "trainjobs")}
QUEUES = ("kueue.x-k8s.io", "localqueues")
_SERVING = ("serving.kserve.io", "inferenceservices")
_ON_JOBS = ("create", "delete", "get", "patch", "watch")
RIGHTS = {(*resource, verb) for resource in _JOBS.values() for verb in _ON_JOBS} | {
    ("", "pods", "get"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "pods/log", "get"),
    ("", "events", "list"),
}
"""The rights in docs/launcher-role.yaml: group, resource and verb."""


@dataclass(frozen=True)
class Resource:
    """A kind of object that the cluster knows if its operator is installed.

    Attributes:
        group: API group.
        plural: Name of the resource.
        why: What needs it; empty if this project does not.
    """

    group: str
    plural: str
    why: str = ""


@dataclass(frozen=True)
class Named:
    """An object that must exist, with its keys.

    Attributes:
        kind: Resource of the core group, in the plural: `secrets`, `configmaps`, …
        name: Its name.
        keys: Required keys.
        known: Allowed keys; empty for any.
        optional: Whether pods start without it.
    """

    kind: str
    name: str
    keys: frozenset[str] = frozenset()
    known: frozenset[str] = frozenset()
    optional: bool = False


def launches(project: Project) -> str:
    """The kind of launch of a project: `local`, `pytorchjob` or `trainjob`."""
    return project.file.launch.kind


def resources(project: Project, platform: Platform) -> Iterator[Resource]:
    """Kinds of objects that the project or the platform uses, and other common ones."""
    kind = launches(project)
    for name, (group, plural) in _JOBS.items():
        yield Resource(group, plural, f"launch.kind: {name}" if name == kind else "")
    queue = platform.queue or getattr(project.file.launch, "queue", "")
    yield Resource(*QUEUES, f"the queue {queue}" if queue else "")
    yield Resource(*_SERVING)


def rights(project: Project) -> list[tuple[str, str, str]]:
    """Group, resource and verb of each right that the project's launcher needs; empty for a local launcher."""
    if isinstance(project.file.launch, LocalLaunch):
        return []
    own = _JOBS[launches(project)]
    return sorted(right for right in RIGHTS if right[:2] == own or not right[0])


def objects(project: Project, platform: Platform) -> Iterator[Named]:
    """Secrets, config maps, claims and accounts that pods use."""
    needed = {"source-url"} if getattr(project.file.source, "url_env", "") else set()
    known = {*CREDENTIAL_KEYS, "source-url", "alert-webhook", "online-store", "model-registry-token"}
    yield Named("configmaps", platform.settings, known=frozenset(SETTINGS_KEYS), optional=True)
    yield Named("secrets", platform.credentials, frozenset(needed), frozenset(known), not needed)
    every = [platform.pods, *platform.stages.values()]
    kinds = {"secret": "secrets", "config_map": "configmaps"}
    for pods in every:
        for variable in pods.environment:
            yield Named(kinds[variable.source], variable.name, frozenset({variable.key}), optional=variable.optional)
        for folder in pods.mounted:
            yield Named(kinds[folder.source], folder.name, optional=folder.optional)
        for pull in pods.image_pull_secrets:
            yield Named("secrets", pull)
        for volume in pods.volumes:
            yield Named("persistentvolumeclaims", volume.claim)
    if platform.service_account:
        yield Named("serviceaccounts", platform.service_account)
