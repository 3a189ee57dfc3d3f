"""What a cluster needs to serve a version: KServe's InferenceService, and the number of requests to wait for."""

from dataclasses import dataclass
from typing import Any

from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.sample_size import paired_units, parallel_units
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.launchers.spec import CREDENTIAL_KEYS, CREDENTIALS, ONLINE_STORE, SETTINGS, SETTINGS_KEYS
from gatehouse.metrics.arithmetic.intervals import NORMAL
from gatehouse.metrics.catalogue import metric_named
from gatehouse.registry.naming import Named
from gatehouse.registry.state import CANARY, CHAMPION, SHADOW
from gatehouse.runtime.images import TRAINING, image
from gatehouse.store.store import ArtifactStore

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


def stage_of(chosen: Named) -> str:
    """The stage that a version is served in.

    Raises:
        ConfigurationError: if it holds no alias that receives requests.
    """
    stage = chosen.ledger.state().stage_of(chosen.version)
    if stage not in _SERVED:
        name = f"{chosen.ledger.model_name}:{chosen.number}"
        raise ConfigurationError(
            f"{name} is {stage}: expected {', '.join(_SERVED)}, the stages that get requests. "
            f"`gatehouse models promote {name} --to canary` makes it one."
        )
    return stage


def inference_service(chosen: Named, serving: Serving) -> dict[str, Any]:
    """The InferenceService of a version; all versions of a model share its name, so that KServe splits the requests.

    Raises:
        ConfigurationError: if the version is not served, or pods cannot reach the store.
    """
    stage, name = stage_of(chosen), chosen.ledger.model_name
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


def plan(store: ArtifactStore, chosen: Named, percent: int) -> dict[str, Any]:
    """How many units are needed to show that a canary or shadow stays within the policy's margin of the champion.

    If there is no number, `why` says why.
    """
    stage, evaluation = stage_of(chosen), chosen.version.evaluation
    if stage == CHAMPION:
        return {"stage": stage, "why": "the champion is what others are compared with"}
    verdict = store.read_json(evaluation, "verdict.json")
    state = chosen.ledger.state()
    champion = state.version(state.champion)
    compared = store.manifest(evaluation).derived_from.get("champion", "")
    if not verdict.get("comparison") or champion is None or compared != champion.model:
        return {"stage": stage, "why": "its evaluation holds no comparison with the present champion"}
    rule = GatePolicy.model_validate(verdict["policy"]).champion
    fields = Comparison.__dataclass_fields__
    comparison = Comparison(**{name: value for name, value in verdict["comparison"].items() if name in fields})
    margin, confidence = rule.tolerated(comparison.champion), rule.confidence
    if not margin:
        return {"stage": stage, "why": "its policy tolerates no regression (champion.tolerance), and none can be shown"}
    if store.manifest(evaluation).entry("uncertainty.json") is None:
        return {"stage": stage, "why": "its evaluation has no intervals: run the training pipeline again"}
    uncertainty = store.read_json(evaluation, "uncertainty.json")
    result = {"stage": stage, "metric": comparison.metric, "margin": margin, "confidence": confidence, "power": 0.8}
    result |= {"unit": uncertainty["unit"], "tested_units": comparison.units}
    if stage == SHADOW:
        units = paired_units(comparison, confidence, margin)
    elif metric_named(comparison.metric).gaps:
        return result | {"why": f"intervals of {comparison.metric} are cut off at 0 and do not tell how it varies"}
    else:
        intervals = (uncertainty["intervals"][role][comparison.metric] for role in ("candidate", "champion"))
        candidate_error, champion_error = ((high - low) / (2 * NORMAL) for low, high in intervals)
        units = parallel_units(comparison, (candidate_error, champion_error), percent / 100, confidence, margin)
        result |= {"percent": percent}
    if units is None:
        return result | {"why": "the evaluation does not tell how much the metric varies from unit to unit"}
    return result | {"units": units}
