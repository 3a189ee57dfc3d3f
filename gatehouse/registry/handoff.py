"""The InferenceService with which KServe serves a version."""

from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.registry.naming import VersionName
from gatehouse.registry.state import CANARY, CHAMPION, SHADOW
from gatehouse.runtime.images import TRAINING, image
from gatehouse.runtime.variables import CREDENTIAL_KEYS, CREDENTIALS, ONLINE_STORE, SETTINGS, SETTINGS_KEYS

PORT = 8080
_SERVED = (CHAMPION, CANARY, SHADOW)


@dataclass(frozen=True)
class Serving:
    """How a version is served.

    `address` is the address of the store as seen from pods, `percent` the percent of requests that a canary gets,
    `online` whether the version reads features by key. `cpu` and `memory` are requests and limits in Kubernetes'
    notation.
    """

    address: str
    percent: int = 10
    online: bool = False
    cpu: str = "1"
    memory: str = "2Gi"


def inference_service(chosen: VersionName, serving: Serving) -> dict[str, Any]:
    """The InferenceService of a served version; versions of a model share its name, so that KServe splits requests."""
    stage, name = chosen.ledger.state().stage_of(chosen.version), chosen.ledger.model_name
    if stage not in _SERVED:
        raise ConfigurationError(
            f"{name}:{chosen.number} is {stage}: expected {', '.join(_SERVED)}, the stages that get requests. "
            f"`gatehouse models promote {name}:{chosen.number} --to canary` makes it one."
        )
    if "://" not in serving.address or serving.address.startswith("file://"):
        raise ConfigurationError(
            f"store: expected an address that pods reach, gs://… or s3://…, found {serving.address}. Give it with "
            "--pods-store; `gatehouse data pull` brings a model to another store."
        )
    annotations = {"gatehouse/model": chosen.version.model, "gatehouse/stage": stage}
    if stage == SHADOW:
        annotations["serving.kserve.io/enable-tag-routing"] = "true"
    credentials = CREDENTIAL_KEYS | ({"online-store": ONLINE_STORE} if serving.online else {})
    sources = (("configMapKeyRef", SETTINGS, SETTINGS_KEYS), ("secretKeyRef", CREDENTIALS, credentials))
    resources = {"cpu": serving.cpu, "memory": serving.memory}
    probes = {
        path: {"httpGet": {"path": f"/v2/health/{path}", "port": PORT}, "timeoutSeconds": 5}
        for path in ("ready", "live")
    }
    container = {
        "name": "kserve-container",
        "image": image(TRAINING),
        "command": ["gatehouse"],
        "args": [
            "predictor",
            f"{name}:{chosen.number}",  # Never the alias: a pod that starts again serves the same.
            *("--store", serving.address, "--host", "0.0.0.0", "--port", str(PORT)),
            *(["--online"] if serving.online else []),
        ],
        "env": [
            {"name": variable, "valueFrom": {kind: {"name": source, "key": key, "optional": True}}}
            for kind, source, keys in sources
            for key, variable in keys.items()
            if "MLFLOW" not in variable
        ],
        "ports": [{"name": "http1", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": resources, "limits": resources},
        "startupProbe": probes["ready"] | {"periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": probes["ready"],
        "livenessProbe": probes["live"],
    }
    traffic = {CHAMPION: 100, CANARY: serving.percent, SHADOW: 0}[stage]
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
            "annotations": annotations,
        },
        "spec": {"predictor": {"canaryTrafficPercent": traffic, "containers": [container]}},
    }
