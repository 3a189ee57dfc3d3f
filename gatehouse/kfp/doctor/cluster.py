"""Checks of a platform that are possible from here: KFP, Kubernetes, images, store, MLflow and Model Registry."""

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.metadata import version

import yaml

from gatehouse.kfp.doctor.needs import QUEUES, Named, objects, resources, rights
from gatehouse.kfp_api.client import KfpApi
from gatehouse.kfp_api.connection import ENDPOINT, Patience
from gatehouse.launchers.kubernetes.api import ApiConflict, ApiTimeouts, KubernetesApi
from gatehouse.launchers.launcher import ClusterError
from gatehouse.operations.diagnosing.finding import Finding, failed, looked, passed, unchecked
from gatehouse.operations.diagnosing.reach import mlflow_finding, store_finding
from gatehouse.project.platforms import Platform
from gatehouse.project.project import Project
from gatehouse.registry.model_registry import RegistryApi
from gatehouse.runtime.images import HELD, TRAINING_GPU, by_digest

_PATIENCE = Patience(request=10.0, retry=10.0)
_TIMEOUTS = ApiTimeouts(request=10.0, retry=10.0)
_KFP, _ARGO = "kubeflow", "workflow-controller-configmap"
_KFP_STARTS = {
    "OnError": "OnError: a task whose pod was deleted (drained, preempted, its node gone) starts again, one that ends "
    "with an exit code does not",
    "OnFailure": "OnFailure: a task that ends with an exit code starts again, one whose pod was deleted does not",
    "Always": "Always: a task starts again after an exit code, and after its pod was deleted",
    "OnTransientError": "OnTransientError: a task starts again only where Argo takes its message for a passing error",
}
"""What starts again under each retry policy of Argo, by `processNodeRetries` and `inferFailedReason`."""
_ROLE = "kubectl apply -n NAMESPACE -f docs/launcher-role.yaml, bound to the service account of the pods"


def examine(project: Project, platform: Platform) -> Iterator[Finding]:
    """All checks of a platform that are possible from here, one by one."""
    yield from _images(platform)
    yield _kfp(platform)
    yield _store(platform)
    settings: dict[str, str] = {}
    try:
        api = KubernetesApi(_TIMEOUTS)
    except ClusterError as error:
        yield unchecked("Kubernetes", " ".join(str(error).split()), "Set KUBECONFIG, or run this in a pod.")
    else:
        yield from _cluster(api, platform.namespace or api.namespace, project, platform, settings)
    yield mlflow_finding(settings.get("mlflow-tracking-uri", ""))
    yield _model_registry(platform)


def _images(platform: Platform) -> Iterator[Finding]:
    advice = "`make images`, push, and name it in the profile under `images`, by its digest."
    needed = {name: "" for name in HELD if name != TRAINING_GPU}  # Without that one no GPUs are asked for.
    for name, reference in (needed | platform.images).items():
        check = f"image {name}"
        if by_digest(reference):
            yield passed(check, reference)
        else:
            yield failed(check, f"expected repository@sha256:…, found {reference or 'none'}", advice)


def _kfp(platform: Platform) -> Finding:
    if not (platform.endpoint or os.environ.get(ENDPOINT)):
        found = f"neither the profile nor {ENDPOINT} names an endpoint"
        return unchecked("Kubeflow Pipelines", found, f"Set `endpoint` in the profile, or {ENDPOINT}.")

    def look() -> str:
        api = KfpApi.connect(platform.endpoint, platform.namespace, patience=_PATIENCE)
        server = api.server()
        api.find_experiment(platform.experiment)
        mine = version("kfp")
        if server.version and server.version.split(".")[0] != mine.split(".")[0]:
            raise ClusterError(f"{api.endpoint} is {server.version}, expected the major release of kfp {mine}")
        return f"{api.endpoint} answers, {server.version or 'of a version that it does not say'}"

    place = "`endpoint`" if platform.endpoint else ENDPOINT
    advice = f"Check {place} and `namespace` of the profile, and GATEHOUSE_KFP_TOKEN or GATEHOUSE_KFP_TOKEN_FILE."
    return looked("Kubeflow Pipelines", look, advice)


def _store(platform: Platform) -> Finding:
    if "://" not in platform.store:
        return unchecked("store", f"{platform.store} is a folder of the pods", "--run looks at it from a pod.")
    return store_finding(platform.store)


def _model_registry(platform: Platform) -> Finding:
    named = platform.model_registry
    if named is None:
        return unchecked("Model Registry", "the profile names none", needed=False)
    api = RegistryApi(named.address, named.author)

    def look() -> str:
        known = sum(1 for _ in api.every("registered_models"))
        return f"{named.address} answers, with {known:,} registered models"

    return looked("Model Registry", look, "Check `model_registry` of the profile, and GATEHOUSE_MODEL_REGISTRY_TOKEN.")


def _cluster(
    api: KubernetesApi, namespace: str, project: Project, platform: Platform, settings: dict[str, str]
) -> Iterator[Finding]:
    try:
        release = api.get("/version").get("gitVersion", "")
    except (ClusterError, ApiConflict) as error:
        yield failed("Kubernetes", " ".join(str(error).split())[:400], "Check the kubeconfig, and log in again.")
        return
    yield passed("Kubernetes", f"{release}, namespace {namespace}")
    for resource in resources(project, platform):
        yield _resource(api, resource.group, resource.plural, resource.why)
    if platform.queue:
        yield _queue(api, namespace, platform.queue)
    yield _restarts(api, namespace)
    yield from _rights(api, namespace, project, platform.service_account)
    for named in dict.fromkeys(objects(project, platform)):
        yield _object(api, namespace, named, settings if named.name == platform.settings else {})


def _served(api: KubernetesApi, group: str) -> str:
    """The preferred version of an API group, as `kubeflow.org/v1`; raises ApiConflict if the cluster has none."""
    return str(api.get(f"/apis/{group}")["preferredVersion"]["groupVersion"])


def _resource(api: KubernetesApi, group: str, plural: str, why: str) -> Finding:
    check, advice = f"{plural}.{group}", f"Install its operator: {why} needs it." if why else ""
    try:
        served = _served(api, group)
        known = {each["name"] for each in api.get(f"/apis/{served}")["resources"]}
    except ApiConflict:
        served, known = "", set()
    except ClusterError as error:
        return unchecked(check, " ".join(str(error).split())[:400], advice, needed=bool(why))
    if plural in known:
        return passed(check, f"served as {served}")
    if why:
        return failed(check, "the cluster does not know it", advice)
    return unchecked(check, "the cluster does not know it, and this project does not use it", needed=False)


def _queue(api: KubernetesApi, namespace: str, queue: str) -> Finding:
    group, plural = QUEUES
    check, advice = f"queue {queue}", "`gatehouse kueue manifests PROFILE` writes it, where the profile has `kueue`."
    try:
        found = api.get(f"/apis/{_served(api, group)}/namespaces/{namespace}/{plural}/{queue}")
    except ApiConflict:
        return failed(check, f"there is no local queue of this name in {namespace}", advice)
    except ClusterError as error:
        return unchecked(check, " ".join(str(error).split())[:400], advice)
    return passed(check, f"gives to {found['spec'].get('clusterQueue', 'no cluster queue')}")


def _restarts(api: KubernetesApi, namespace: str) -> Finding:
    """Say which failures KFP starts again here, from the retry policy that Argo's controller gives to every task."""
    check, advice = "restarts", f"Ask as somebody who may get the config map {_ARGO} of the namespace {_KFP}."
    unknown = (
        "whether a lost pod or an exit code starts a task again is not known; stages try their errors again anyway"
    )
    try:
        for place in dict.fromkeys((_KFP, namespace)):
            with suppress(ApiConflict):
                data = api.get(f"/api/v1/namespaces/{place}/configmaps/{_ARGO}").get("data") or {}
                return passed(check, f"{_KFP_STARTS[_retry_policy(data)]} ({_ARGO} in {place})")
    except ClusterError as error:
        return unchecked(check, f"{unknown}: {' '.join(str(error).split())[:400]}", advice, needed=False)
    except (KeyError, AttributeError, yaml.YAMLError):
        return unchecked(check, f"{unknown}: {_ARGO} in {place} names no retry policy of Argo", needed=False)
    return unchecked(check, f"{unknown}: {_ARGO} is neither in {_KFP} nor in {namespace}", advice, needed=False)


def _retry_policy(data: dict[str, str]) -> str:
    """The policy in the data of Argo's config map, where settings may stand under one key; `OnFailure` without one."""
    settings = yaml.safe_load(data.get("config", "")) or data
    defaults = settings.get("workflowDefaults") or {}
    defaults = yaml.safe_load(defaults) if isinstance(defaults, str) else defaults
    template = (defaults.get("spec") or {}).get("templateDefaults") or {}
    return str((template.get("retryStrategy") or {}).get("retryPolicy") or "OnFailure")


def _rights(api: KubernetesApi, namespace: str, project: Project, account: str) -> Iterator[Finding]:
    """Check the launcher's rights for the pods' service account, or for the caller if the profile names no account."""
    wanted = rights(project)
    if not wanted:
        yield unchecked("rights", "training runs in its task's own pod", needed=False)
        return
    whose = f"system:serviceaccount:{namespace}:{account}" if account else "who runs this"
    kind = "SubjectAccessReview" if account else "SelfSubjectAccessReview"
    lacking = []
    for group, resource, verb in wanted:
        name, _, below = resource.partition("/")
        asked = {"namespace": namespace, "group": group, "resource": name, "subresource": below, "verb": verb}
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": asked} | ({"user": whose} if account else {}),
        }
        try:
            answer = api.create(f"/apis/authorization.k8s.io/v1/{kind.lower()}s", body)
        except (ClusterError, ApiConflict) as error:
            why = " ".join(str(error).split())[:400]
            yield unchecked("rights", why, "Ask as somebody who may create SubjectAccessReviews.")
            return
        if not answer.get("status", {}).get("allowed"):
            lacking.append(f"{verb} {resource}{f'.{group}' * bool(group)}")
    if lacking:
        yield failed("rights", f"{whose} may not {', '.join(lacking)}", _ROLE.replace("NAMESPACE", namespace))
    else:
        yield passed("rights", f"{whose} may do all {len(wanted)} things that the launcher does")


def _object(api: KubernetesApi, namespace: str, named: Named, values: dict[str, str]) -> Finding:
    """Check that an object exists with its keys; only the values of a config map are kept, in `values`."""
    check = f"{named.kind.removesuffix('s')} {named.name}"
    keys = ", ".join(sorted(named.keys))
    advice = f"Create it in {namespace}{f', with {keys}' if keys else ''}: docs/cluster.md."
    try:
        found = api.get(f"/api/v1/namespaces/{namespace}/{named.kind}/{named.name}")
    except ApiConflict:
        if named.optional:
            return unchecked(check, "it is not there, and may be missing", needed=False)
        return failed(check, f"it is not in {namespace}", advice)
    except ClusterError as error:
        return unchecked(check, " ".join(str(error).split())[:400], advice, needed=not named.optional)
    held = set(found.get("data") or {})
    if named.kind == "configmaps":
        values |= found.get("data") or {}
    if missing := sorted(named.keys - held):
        return failed(check, f"it lacks {', '.join(missing)}", advice)
    if strange := sorted(held - named.known) if named.known else []:
        expected = ", ".join(sorted(named.known))
        return failed(check, f"nothing reads {', '.join(strange)}", f"Expected keys among {expected}.")
    return passed(check, f"it has {', '.join(sorted(held))}" if held else "it is there")
