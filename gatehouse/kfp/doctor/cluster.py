"""Checks of a platform that are possible from here: KFP, Kubernetes, images, store, MLflow and Model Registry."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import yaml

from gatehouse.kfp.doctor.images import image_finding
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import Patience
from gatehouse.launchers.kubernetes.api import ApiConflict, ApiTimeouts, KubernetesApi
from gatehouse.launchers.launcher import ClusterError
from gatehouse.operations.diagnosing_stage import (
    Finding,
    failed,
    looked,
    mlflow_finding,
    passed,
    store_finding,
    unchecked,
)
from gatehouse.operations.outbox import variables_of
from gatehouse.pieces.cluster_job import RESOURCES
from gatehouse.pieces.engine import Engine
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project
from gatehouse.registry.projection import RegistryApi
from gatehouse.runtime.images import LOCKS, RAY, TRAINING_GPU
from gatehouse.runtime.variables import CREDENTIAL_KEYS, ENDPOINT, SETTINGS_KEYS

_PATIENCE = Patience(request=10.0, retry=10.0)
_TIMEOUTS = ApiTimeouts(request=10.0, retry=10.0)
_JOBS = {"trainjob": ("trainer.kubeflow.org", "trainjobs"), "pytorchjob": ("kubeflow.org", "pytorchjobs")}
_ENGINES = {kind: (group, plural) for kind, (_, group, _, plural) in RESOURCES.items()}
_NEWEST = {
    "trainjobs": ("TrainJob", ("activeDeadlineSeconds", "runtimePatches")),
    "rayjobs": ("RayJob", ("backoffLimit", "rayClusterSpec.authOptions")),
}
"""Kinds of objects, with fields of their spec that the launcher sets and earlier releases of the operator lack."""
_QUEUES = ("kueue.x-k8s.io", "localqueues")
_SERVING = ("serving.kserve.io", "inferenceservices")
_ON_JOBS = ("create", "delete", "get", "patch")
RIGHTS = {(*resource, verb) for resource in (*_JOBS.values(), *_ENGINES.values()) for verb in _ON_JOBS} | {
    ("", "pods", "get"),
    ("", "pods", "list"),
    ("", "pods", "watch"),
    ("", "pods/log", "get"),
    ("", "events", "list"),
}
"""The rights in docs/launcher-role.yaml: group, resource and verb."""
_KFP, _ARGO = "kubeflow", "workflow-controller-configmap"
_POLICIES = ("OnError", "OnFailure", "Always", "OnTransientError")
_ROLE = "kubectl apply -n NAMESPACE -f docs/launcher-role.yaml, bound to the service account of the pods"


@dataclass(frozen=True)
class ClusterObject:
    """An object that must exist, unless it is optional, with its required keys, and no keys but the allowed ones."""

    kind: str
    name: str
    keys: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    optional: bool = False


def examine(project: Project, platform: Platform) -> Iterator[Finding]:
    """All checks of a platform that are possible from here, one by one."""
    engine = _engine(project, platform)
    spare = {TRAINING_GPU} | (set() if engine.needs_ray else {RAY})  # The first is needed only for GPUs.
    needed = {name: "" for name in LOCKS if name not in spare}
    for name, reference in (needed | platform.images).items():
        yield image_finding(name, reference)
    yield _kfp(platform)
    if "://" in platform.store:
        yield store_finding(platform.store)
    else:
        yield unchecked("store", f"{platform.store} is a folder of the pods", "--run looks at it from a pod.")
    settings: dict[str, str] = {}
    try:
        api = KubernetesApi(_TIMEOUTS)
    except ClusterError as error:
        yield unchecked("Kubernetes", _words(error), "Set KUBECONFIG, or run this in a pod.")
    else:
        yield from _cluster(api, platform.namespace or api.namespace, project, platform, settings)
    yield mlflow_finding(settings.get("mlflow-tracking-uri", ""))
    registry = platform.model_registry
    if registry is None:
        yield unchecked("Model Registry", "the profile names none", needed=False)
        return

    def look() -> str:
        models = sum(1 for _ in RegistryApi(registry.address, registry.author).every("registered_models"))
        return f"{registry.address} answers, with {models:,} registered models"

    yield looked("Model Registry", look, "Check `model_registry` of the profile, and GATEHOUSE_MODEL_REGISTRY_TOKEN.")


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:400]


def _kfp(platform: Platform) -> Finding:
    check = "Kubeflow Pipelines"
    if not (platform.endpoint or os.environ.get(ENDPOINT)):
        missing = f"neither the profile nor {ENDPOINT} names an endpoint"
        return unchecked(check, missing, f"Set `endpoint` in the profile, or {ENDPOINT}.")

    def look() -> str:
        api = KfpApi.connect(platform.endpoint, platform.namespace, patience=_PATIENCE)
        server, sdk = api.server(), version("kfp")
        api.find_experiment(platform.experiment)
        if server.version and server.version.split(".")[0] != sdk.split(".")[0]:
            raise ClusterError(f"{api.endpoint} is {server.version}, expected the major release of kfp {sdk}")
        return f"{api.endpoint} answers, {server.version or 'of an unknown version'}"

    place = "`endpoint`" if platform.endpoint else ENDPOINT
    advice = f"Check {place} and `namespace` of the profile, and GATEHOUSE_KFP_TOKEN or GATEHOUSE_KFP_TOKEN_FILE."
    return looked(check, look, advice)


def _cluster(
    api: KubernetesApi, namespace: str, project: Project, platform: Platform, settings: dict[str, str]
) -> Iterator[Finding]:
    try:
        release = api.get("/version").get("gitVersion", "")
    except (ClusterError, ApiConflict) as error:
        yield failed("Kubernetes", _words(error), "Check the kubeconfig, and log in again.")
        return
    yield passed("Kubernetes", f"{release}, namespace {namespace}")
    launch = project.file.launch
    for kind, job in _JOBS.items():
        yield _resource(api, *job, f"launch.kind: {kind}" if kind == launch.kind else "")
    engine = _engine(project, platform)
    starts = engine.kind in _ENGINES and not engine.address
    for kind, job in _ENGINES.items():
        yield _resource(api, *job, f"engine.kind: {kind}" if starts and kind == engine.kind else "")
    queue = platform.queue or getattr(launch, "queue", "")
    yield _resource(api, *_QUEUES, f"the queue {queue}" if queue else "")
    yield _resource(api, *_SERVING, "")
    if platform.queue:
        check, (group, plural) = f"queue {queue}", _QUEUES
        advice = "Create a LocalQueue of Kueue in the namespace, or correct `queue` of the profile."
        try:
            queue_object = api.get(f"/apis/{_served(api, group)}/namespaces/{namespace}/{plural}/{queue}")
            yield passed(check, f"gives to {queue_object['spec'].get('clusterQueue', 'no cluster queue')}")
        except ApiConflict:
            yield failed(check, f"there is no local queue of this name in {namespace}", advice)
        except ClusterError as error:
            yield unchecked(check, _words(error), advice)
    yield _restarts(api, namespace)
    created = {_JOBS.get(launch.kind), _ENGINES[engine.kind] if starts else None} - {None}
    if not created:
        yield unchecked("rights", "training and pieces run in their tasks' own pods", needed=False)
    else:
        rights = sorted(right for right in RIGHTS if right[:2] in created or not right[0])
        yield _rights(api, namespace, rights, platform.service_account)
    for named in dict.fromkeys(_objects(project, platform)):
        yield _object(api, namespace, named, settings if named.name == platform.settings else {})


def _engine(project: Project, platform: Platform) -> Engine:
    return platform.engine or project.file.engine


def _served(api: KubernetesApi, group: str) -> str:
    """The preferred version of an API group, as `kubeflow.org/v1`; raises ApiConflict if the cluster has none."""
    return str(api.get(f"/apis/{group}")["preferredVersion"]["groupVersion"])


def _resource(api: KubernetesApi, group: str, plural: str, why: str) -> Finding:
    """Check that the cluster knows a kind of object; `why` names what needs it, or is empty."""
    check, advice = f"{plural}.{group}", f"Install its operator: {why} needs it." if why else ""
    try:
        served = _served(api, group)
        if plural in {resource["name"] for resource in api.get(f"/apis/{served}")["resources"]}:
            if why and (lacking := _lacking(api, served, plural)):
                return failed(check, f"{served} lacks {', '.join(lacking)} in its spec", "Update its operator.")
            return passed(check, f"served as {served}")
    except ApiConflict:
        pass
    except ClusterError as error:
        return unchecked(check, _words(error), advice, needed=bool(why))
    if why:
        return failed(check, "the cluster does not know it", advice)
    return unchecked(check, "the cluster does not know it, and this project does not use it", needed=False)


def _lacking(api: KubernetesApi, served: str, plural: str) -> list[str]:
    """The fields of the spec that the launcher sets and the served CRD lacks; none where the API shows no schema."""
    kind, fields = _NEWEST.get(plural, ("", ()))
    try:
        schemas = api.get(f"/openapi/v3/apis/{served}")["components"]["schemas"] if kind else {}
    except ApiConflict:
        return []
    specs = [
        schema["properties"]["spec"]["properties"] for name, schema in schemas.items() if name.endswith(f".{kind}")
    ]

    def knows(properties: dict[str, Any], field: str) -> bool:
        name, _, below = field.partition(".")
        return name in properties and (not below or knows(properties[name].get("properties", {}), below))

    return [field for spec in specs for field in fields if not knows(spec, field)]


def _restarts(api: KubernetesApi, namespace: str) -> Finding:
    """Name the retry policy that Argo's controller gives to every task: what it means is in docs/specs.md."""
    check, advice = "restarts", f"Ask as somebody who may get the config map {_ARGO} of the namespace {_KFP}."
    why = f"{_ARGO} is neither in {_KFP} nor in {namespace}"
    try:
        for place in dict.fromkeys((_KFP, namespace)):
            with suppress(ApiConflict):
                data = api.get(f"/api/v1/namespaces/{place}/configmaps/{_ARGO}").get("data") or {}
                settings = yaml.safe_load(data.get("config", "")) or data  # Settings may be under one key.
                defaults = settings.get("workflowDefaults") or {}
                defaults = yaml.safe_load(defaults) if isinstance(defaults, str) else defaults
                template = (defaults.get("spec") or {}).get("templateDefaults") or {}
                policy = str((template.get("retryStrategy") or {}).get("retryPolicy") or "OnFailure")
                if policy in _POLICIES:
                    return passed(check, f"Argo's retry policy is {policy} ({_ARGO} in {place})")
                why = f"{_ARGO} in {place} names no retry policy of Argo"
    except ClusterError as error:
        why = _words(error)
    return unchecked(check, why, advice, needed=False)


def _rights(api: KubernetesApi, namespace: str, rights: list[tuple[str, str, str]], account: str) -> Finding:
    """Check the launcher's rights for the pods' service account, or for the caller if the profile names no account."""
    whose = f"system:serviceaccount:{namespace}:{account}" if account else "who runs this"
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    lacking = []
    for group, resource, verb in rights:
        name, _, below = resource.partition("/")
        attributes = {"namespace": namespace, "group": group, "resource": name, "subresource": below, "verb": verb}
        spec = {"resourceAttributes": attributes} | ({"user": whose} if account else {})
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        try:
            answer = api.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
        except (ClusterError, ApiConflict) as error:
            return unchecked("rights", _words(error), "Ask as somebody who may create SubjectAccessReviews.")
        if not answer.get("status", {}).get("allowed"):
            lacking.append(f"{verb} {resource}{f'.{group}' * bool(group)}")
    if lacking:
        return failed("rights", f"{whose} may not {', '.join(lacking)}", _ROLE.replace("NAMESPACE", namespace))
    return passed("rights", f"{whose} may do all {len(rights)} things that the launcher does")


def _objects(project: Project, platform: Platform) -> Iterator[ClusterObject]:
    """Secrets, config maps, claims and accounts that pods use."""
    needed = {"source-url"} if getattr(project.file.source, "url_env", "") else set()
    all_keys = {*CREDENTIAL_KEYS, "source-url", "alert-webhook", "online-store", "model-registry-token"}
    all_keys |= variables_of(*project.file.events).keys()
    yield ClusterObject("configmaps", platform.settings, allowed=frozenset(SETTINGS_KEYS), optional=True)
    yield ClusterObject("secrets", platform.credentials, frozenset(needed), frozenset(all_keys), not needed)
    kinds = {"secret": "secrets", "config_map": "configmaps"}
    for pods in (platform.pods, *platform.stages.values()):
        for variable in pods.environment:
            yield ClusterObject(
                kinds[variable.source], variable.name, frozenset({variable.key}), optional=variable.optional
            )
        yield from (
            ClusterObject(kinds[folder.source], folder.name, optional=folder.optional) for folder in pods.mounted
        )
        yield from (ClusterObject("secrets", secret) for secret in pods.image_pull_secrets)
        yield from (ClusterObject("persistentvolumeclaims", volume.claim) for volume in pods.volumes)
    if platform.service_account:
        yield ClusterObject("serviceaccounts", platform.service_account)


def _object(api: KubernetesApi, namespace: str, named: ClusterObject, values: dict[str, str]) -> Finding:
    """Check that an object exists with its keys; only the values of a config map are kept, in `values`."""
    check = f"{named.kind.removesuffix('s')} {named.name}"
    required = f", with {', '.join(sorted(named.keys))}" * bool(named.keys)
    advice = f"Create it in {namespace}{required}: docs/cluster.md."
    try:
        body = api.get(f"/api/v1/namespaces/{namespace}/{named.kind}/{named.name}")
    except ApiConflict:
        if named.optional:
            return unchecked(check, "it is not there, and may be missing", needed=False)
        return failed(check, f"it is not in {namespace}", advice)
    except ClusterError as error:
        return unchecked(check, _words(error), advice, needed=not named.optional)
    data = body.get("data") or {}
    if named.kind == "configmaps":
        values |= data
    if missing := sorted(named.keys - data.keys()):
        return failed(check, f"it lacks {', '.join(missing)}", advice)
    if strange := sorted(data.keys() - named.allowed) if named.allowed else []:
        expected = ", ".join(sorted(named.allowed))
        return failed(check, f"nothing reads {', '.join(strange)}", f"Expected keys among {expected}.")
    return passed(check, f"it has {', '.join(sorted(data))}" if data else "it is there")
