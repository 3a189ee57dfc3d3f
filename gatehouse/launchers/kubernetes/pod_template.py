"""The parts of a pod that are the same for all operators: environment, resources, volumes and placement."""

from typing import Any

from gatehouse.launchers.spec import ClusterLaunch, FromSecret, Topology

WORK = "/var/lib/gatehouse"
_SHM, _WORK = "shm", "work"


def environment(launch: ClusterLaunch, about: dict[str, str]) -> list[dict[str, Any]]:
    """Environment of the container, in a fixed order.

    Args:
        launch: The settings; `launch.env` overrides all other sources.
        about: Variables that describe the job.
    """
    ours = about | {"TMPDIR": WORK, "GATEHOUSE_CACHE": f"{WORK}/cache"}
    if launch.nodes > 1:
        ours["GLOO_SOCKET_IFNAME"] = "eth0"
    plain = [{"name": name, "value": value} for name, value in sorted((ours | launch.env).items())]
    return [*plain, *(_secret(each) for each in launch.secrets if each.variable not in launch.env)]


def _secret(source: FromSecret) -> dict[str, Any]:
    field = "secretKeyRef" if source.source == "secret" else "configMapKeyRef"
    value = {"name": source.name, "key": source.key, "optional": source.optional}
    return {"name": source.variable, "valueFrom": {field: value}}


def resources(launch: ClusterLaunch) -> dict[str, Any]:
    """Requests and limits of one pod. They are equal: such pods are evicted last."""
    wanted = launch.resources
    amounts = {"cpu": wanted.cpu, "memory": wanted.memory}
    if wanted.gpus:
        amounts[wanted.gpu] = str(wanted.gpus)
    return {"requests": dict(amounts), "limits": dict(amounts)}


def volumes(launch: ClusterLaunch) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of the pod, and where its container mounts them."""
    own = [
        {"name": _SHM, "emptyDir": {"medium": "Memory", "sizeLimit": launch.shared_memory}},
        {"name": _WORK, "emptyDir": {}},
    ]
    mounts: list[dict[str, Any]] = [{"name": _SHM, "mountPath": "/dev/shm"}, {"name": _WORK, "mountPath": WORK}]
    for number, volume in enumerate(launch.volumes):
        name = f"volume-{number}"
        own.append({"name": name, "persistentVolumeClaim": {"claimName": volume.claim, "readOnly": volume.read_only}})
        mounts.append({"name": name, "mountPath": volume.path, "readOnly": volume.read_only})
    return own, mounts


def placement(launch: ClusterLaunch, pods: dict[str, str], *, constraints: bool) -> dict[str, Any]:
    """Fields of a pod's spec that say on which nodes it may run, and with which service account.

    Args:
        launch: The settings.
        pods: The labels that all pods of the job have, and no others.
        constraints: Whether the operator supports topology spread constraints. If not, spread pods get an anti-affinity
            to each other.
    """
    placed: dict[str, Any] = {"terminationGracePeriodSeconds": launch.grace_seconds}
    if launch.service_account:
        placed["serviceAccountName"] = launch.service_account
    if launch.pull_secrets:
        placed["imagePullSecrets"] = [{"name": name} for name in launch.pull_secrets]
    if launch.node_selector:
        placed["nodeSelector"] = dict(launch.node_selector)
    if launch.tolerations or launch.spot:
        tolerated = [each.model_dump() for each in (*launch.tolerations, *launch.spot)]
        placed["tolerations"] = [{name: value for name, value in each.items() if value} for each in tolerated]
    if launch.topology and launch.topology.place == "spread" and constraints:
        placed["topologySpreadConstraints"] = [_constraint(launch.topology, pods)]
    elif launch.topology:
        placed["affinity"] = _affinity(launch.topology, pods)
    return placed


def _constraint(topology: Topology, pods: dict[str, str]) -> dict[str, Any]:
    unsatisfiable = "DoNotSchedule" if topology.required else "ScheduleAnyway"
    selector = {"matchLabels": dict(pods)}
    return {
        "maxSkew": 1,
        "topologyKey": topology.key,
        "whenUnsatisfiable": unsatisfiable,
        "labelSelector": selector,
    }


def _affinity(topology: Topology, pods: dict[str, str]) -> dict[str, Any]:
    """An affinity (`pack`) or anti-affinity (`spread`) of the pods to those of their own job."""
    term = {"topologyKey": topology.key, "labelSelector": {"matchLabels": dict(pods)}}
    when = "DuringSchedulingIgnoredDuringExecution"
    if topology.required:
        rule: dict[str, Any] = {f"required{when}": [term]}
    else:
        rule = {f"preferred{when}": [{"weight": 100, "podAffinityTerm": term}]}
    return {"podAffinity" if topology.place == "pack" else "podAntiAffinity": rule}
