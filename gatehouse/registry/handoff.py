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
_TAGGED = {"serving.kserve.io/enable-tag-routing": "true"}


@dataclass(frozen=True)
class Serving:
    """How a version is served.

    Attributes:
        address: Address of the store as seen from pods.
        percent: Percent of requests that a canary gets.
        online: Whether it reads features by key.
        cpu, memory: Requests and limits in Kubernetes' notation.
    """

    address: str
    percent: int = 10
    online: bool = False
    cpu: str = "1"
    memory: str = "2Gi"


def stage_of(found: Named) -> str:
    """The stage that a version is served in.

    Raises:
        ConfigurationError: if it holds no alias that receives requests.
    """
    stage = found.ledger.state().stage_of(found.version)
    if stage not in _SERVED:
        name = f"{found.ledger.model_name}:{found.number}"
        raise ConfigurationError(
            f"{name} is {stage}: expected {', '.join(_SERVED)}, the stages that get requests. "
            f"`gatehouse models promote {name} --to canary` makes it one."
        )
    return stage


def inference_service(found: Named, asked: Serving) -> dict[str, Any]:
    """The InferenceService of a version; all versions of a model share its name, so that KServe splits the requests.

    Raises:
        ConfigurationError: if the version is not served, or pods cannot reach the store.
    """
    stage, name = stage_of(found), found.ledger.model_name
    if "://" not in asked.address or asked.address.startswith("file://"):
        raise ConfigurationError(
            f"store: expected an address that pods reach, gs://… or s3://…, found {asked.address}. Give it with "
            "--pods-store; `gatehouse data pull` brings a model to another store."
        )
    traffic = {CHAMPION: 100, CANARY: asked.percent, SHADOW: 0}[stage]
    facts = {"gatehouse/model": found.version.model, "gatehouse/stage": stage}
    return {
        "apiVersion": "serving.kserve.io/v1beta1",
        "kind": "InferenceService",
        "metadata": {
            "name": name,
            "labels": {"app.kubernetes.io/managed-by": "gatehouse"},
            "annotations": facts | (_TAGGED if stage == SHADOW else {}),
        },
        "spec": {"predictor": {"canaryTrafficPercent": traffic, "containers": [_container(found, asked)]}},
    }


def _container(found: Named, asked: Serving) -> dict[str, Any]:
    version = f"{found.ledger.model_name}:{found.number}"  # Never the alias: a pod that starts again serves the same.
    resources = {"cpu": asked.cpu, "memory": asked.memory}
    environment = [
        {"name": variable, "valueFrom": {kind: {"name": name, "key": key, "optional": True}}}
        for kind, name, keys in (
            ("configMapKeyRef", SETTINGS, SETTINGS_KEYS),
            ("secretKeyRef", CREDENTIALS, CREDENTIAL_KEYS | ({"online-store": ONLINE_STORE} if asked.online else {})),
        )
        for key, variable in keys.items()
        if "MLFLOW" not in variable
    ]
    return {
        "name": "kserve-container",
        "image": image(TRAINING),
        "command": ["gatehouse"],
        "args": [
            *("predictor", version, "--store", asked.address, "--host", "0.0.0.0", "--port", str(PORT)),
            *(["--online"] if asked.online else []),
        ],
        "env": environment,
        "ports": [{"name": "http1", "containerPort": PORT, "protocol": "TCP"}],
        "resources": {"requests": resources, "limits": resources},
        "startupProbe": _probe("ready") | {"periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": _probe("ready"),
        "livenessProbe": _probe("live"),
    }


def _probe(what: str) -> dict[str, Any]:
    return {"httpGet": {"path": f"/v2/health/{what}", "port": PORT}, "timeoutSeconds": 5}


def plan(store: ArtifactStore, found: Named, percent: int) -> dict[str, Any]:
    """How many units are needed to show that a canary or shadow stays within the policy's margin of the champion.

    If there is no number, `why` says why.
    """
    stage, evaluation = stage_of(found), found.version.evaluation
    if stage == CHAMPION:
        return {"stage": stage, "why": "the champion is what others are compared with"}
    verdict = store.read_json(evaluation, "verdict.json")
    state = found.ledger.state()
    champion = state.version(state.champion)
    compared = store.manifest(evaluation).derived_from.get("champion", "")
    if not verdict.get("comparison") or champion is None or compared != champion.model:
        return {"stage": stage, "why": "its evaluation holds no comparison with the present champion"}
    rule = GatePolicy.model_validate(verdict["policy"]).champion
    known = Comparison.__dataclass_fields__
    comparison = Comparison(**{name: value for name, value in verdict["comparison"].items() if name in known})
    margin, confidence = rule.tolerated(comparison.champion), rule.confidence
    if not margin:
        return {"stage": stage, "why": "its policy tolerates no regression (champion.tolerance), and none can be shown"}
    if store.manifest(evaluation).entry("uncertainty.json") is None:
        return {"stage": stage, "why": "its evaluation has no intervals: run the training pipeline again"}
    uncertainty = store.read_json(evaluation, "uncertainty.json")
    told = {"stage": stage, "metric": comparison.metric, "margin": margin, "confidence": confidence, "power": 0.8}
    told |= {"unit": uncertainty["unit"], "tested_units": comparison.units}
    if stage == SHADOW:
        units = paired_units(comparison, confidence, margin)
    elif metric_named(comparison.metric).gaps:
        return told | {"why": f"intervals of {comparison.metric} are cut off at 0 and do not tell how it varies"}
    else:
        intervals = (uncertainty["intervals"][role][comparison.metric] for role in ("candidate", "champion"))
        ours, theirs = ((high - low) / (2 * NORMAL) for low, high in intervals)
        units = parallel_units(comparison, (ours, theirs), percent / 100, confidence, margin)
        told |= {"percent": percent}
    if units is None:
        return told | {"why": "the evaluation does not tell how much the metric varies from unit to unit"}
    return told | {"units": units}
