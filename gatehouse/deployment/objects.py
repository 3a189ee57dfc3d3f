"""The objects of a predictor in a cluster, as a cluster takes them; the same deployment gives the same bytes.

The pods fit the Pod Security Standard *restricted*, and write nowhere but below /tmp.
"""

import json
from typing import Any

import yaml

from gatehouse.deployment.spec import DeploySpec
from gatehouse.launchers.spec import STORE_SECRETS, FromSecret
from gatehouse.runtime.variables import ONLINE_STORE
from gatehouse.store.canonical import digest_of

SERVICE, TEMPLATE = "gatehouse.dev/service", "gatehouse.dev/template"
"""Labels of a pod: its service, and a digest of what it was made from."""
PORT = 8080
DRAIN_SECONDS, GRACE_SECONDS = 10, 90
"""How long a pod that must end still answers, as others learn late that it ends; and how long it may take in all, with
the requests that it has begun and the rest of its log.
"""
_START_SECONDS = 600
Object = dict[str, Any]


def objects_of(spec: DeploySpec, name: str, model: str) -> list[Object]:
    """The objects that serve a model, such as `delays` or `delays:4`; the last but an autoscaler makes the pods."""
    labels = {"app.kubernetes.io/managed-by": "gatehouse", SERVICE: name}
    about: Object = {"name": name} | ({"namespace": spec.namespace} if spec.namespace else {}) | {"labels": labels}
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    pod, most = _pod(spec, model), spec.max_replicas or spec.replicas
    pod_labels = spec.labels | labels | {TEMPLATE: digest_of([pod, spec.labels, spec.annotations])[:16]}
    of_pods: Object = {"labels": pod_labels} | ({"annotations": spec.annotations} if spec.annotations else {})
    if spec.kind == "kserve":
        scale: Object = {"minReplicas": spec.replicas, "maxReplicas": most}
        scale |= {"scaleMetric": "cpu", "scaleTarget": spec.cpu_percent} if spec.max_replicas else {}
        # Knative would end pods that nobody asks, and with them the reading of the ledger.
        mode = {"serving.kserve.io/deploymentMode": "Standard"}
        predictor = scale | {"deploymentStrategy": rolling} | of_pods | pod
        return [
            _object("serving.kserve.io/v1beta1", "InferenceService", about | {"annotations": mode}, predictor=predictor)
        ]
    selector = {SERVICE: name}
    port = {"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}
    deployment = _object(
        "apps/v1",
        "Deployment",
        about,
        **({} if spec.max_replicas else {"replicas": spec.replicas}),
        revisionHistoryLimit=3,
        progressDeadlineSeconds=round(spec.timeout_minutes * 60) + 1,
        strategy=rolling,
        selector={"matchLabels": selector},
        template={"metadata": of_pods, "spec": pod},
    )
    objects = [_object("v1", "Service", about, selector=selector, ports=[port]), deployment]
    if spec.max_replicas:
        target = {"type": "Utilization", "averageUtilization": spec.cpu_percent}
        autoscaler = _object(
            "autoscaling/v2",
            "HorizontalPodAutoscaler",
            about,
            scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            minReplicas=spec.replicas,
            maxReplicas=most,
            metrics=[{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
        )
        objects.append(autoscaler)
    return objects


def manifests_of(objects: list[Object]) -> str:
    """Objects as YAML, in one file, without anchors."""
    return yaml.safe_dump_all(json.loads(json.dumps(objects)), sort_keys=False, width=120)


def container_of(kind: str) -> str:
    """Name of the container with the predictor; KServe wants its own."""
    return "kserve-container" if kind == "kserve" else "predictor"


def _object(version: str, kind: str, metadata: Object, **spec: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _pod(spec: DeploySpec, model: str) -> Object:
    volumes, mounts = _volumes(spec)
    arguments = ["predictor", model, "--store", spec.store, "--host", "0.0.0.0", "--port", str(PORT)]
    amounts = {"cpu": spec.cpu, "memory": spec.memory}
    live, ready = ({"httpGet": {"path": f"/v2/health/{state}", "port": "http"}} for state in ("live", "ready"))
    container = {
        "name": container_of(spec.kind),
        "image": spec.image,
        **({"imagePullPolicy": spec.image_pull_policy} if spec.image_pull_policy else {}),
        "command": ["gatehouse"],
        "args": [*arguments, "--drain", str(DRAIN_SECONDS), *spec.arguments],
        "env": _environment(spec),
        "ports": [{"name": "http", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": amounts, "limits": amounts},
        "startupProbe": live | {"periodSeconds": 2, "failureThreshold": _START_SECONDS // 2},
        "readinessProbe": ready | {"periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 2},
        "livenessProbe": live | {"periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 6},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }
    users = {"runAsUser": spec.run_as_user, "runAsGroup": spec.run_as_group}
    optional = {
        "serviceAccountName": spec.service_account,
        "nodeSelector": spec.node_selector,
        "tolerations": [{k: v for k, v in taint.model_dump().items() if v} for taint in spec.tolerations],
        "imagePullSecrets": [{"name": name} for name in spec.image_pull_secrets],
    }
    return {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        | {name: number for name, number in users.items() if number},
        **{name: value for name, value in optional.items() if value},
        "containers": [container],
        "volumes": volumes,
    }


def _environment(spec: DeploySpec) -> list[Object]:
    """Variables from the config map and the secret of the platform, and those of the profile, which win."""
    names = {"config_map": spec.settings, "secret": spec.credentials}
    sources = [row.model_copy(update={"name": names[row.source]}) for row in STORE_SECRETS]
    if "--online" in spec.arguments:
        sources.append(FromSecret(variable=ONLINE_STORE, name=spec.credentials, key="online-store"))
    refs = {"secret": "secretKeyRef", "config_map": "configMapKeyRef"}
    by_variable = {row.variable: row for row in (*sources, *spec.environment)}
    return [
        {"name": "GATEHOUSE_CACHE", "value": "/tmp/cache"},
        *(
            {"name": row.variable, "valueFrom": {refs[row.source]: row.model_dump(include={"name", "key", "optional"})}}
            for row in by_variable.values()
        ),
    ]


def _volumes(spec: DeploySpec) -> tuple[list[Object], list[Object]]:
    """The volumes of a pod, and where they are mounted."""
    volumes: list[Object] = [{"name": "work", "emptyDir": {"sizeLimit": spec.scratch} if spec.scratch else {}}]
    mounts: list[Object] = [{"name": "work", "mountPath": "/tmp"}]
    for number, volume in enumerate(spec.volumes):
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": volume.claim}})
        mounts.append({"name": f"volume-{number}", "mountPath": volume.path})
    for number, folder in enumerate(spec.mounted):
        source = (
            {"secret": {"secretName": folder.name, "optional": folder.optional}}
            if folder.source == "secret"
            else {"configMap": {"name": folder.name, "optional": folder.optional}}
        )
        volumes.append({"name": f"mounted-{number}", **source})
        mounts.append({"name": f"mounted-{number}", "mountPath": folder.path, "readOnly": True})
    return volumes, mounts
