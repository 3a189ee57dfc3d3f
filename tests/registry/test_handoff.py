"""The handoff of a version: an InferenceService that a cluster admits, its schema, and a plan by stage."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.evaluation.gate import Comparison
from gatehouse.evaluation.rules.champion import ChampionRule
from gatehouse.evaluation.sample_size import paired_units, parallel_units
from gatehouse.evaluation.spec import GatePolicy
from gatehouse.registry.handoff import PORT, Serving, inference_service, plan
from gatehouse.registry.naming import Named, named
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.server.inference import ServedModel
from gatehouse.store.canonical import canonical_json
from gatehouse.store.identity import identity_of
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import MANUAL, NAME, Gate
from tests.stand_ins.kubernetes_kinds import validator_of

CRD = "serving.kserve.io_inferenceservices.yaml"
BUCKET = Serving("gs://acme/gatehouse", percent=15)


@pytest.fixture
def gate(gate: Gate) -> Gate:
    """A champion, and a second version that is its shadow."""
    gate.run(gate.model(1))
    gate.run(gate.model(2), policy=MANUAL)
    promote(PromoteRequest(model_name=NAME, version=2, action="promote", to="shadow"), gate.store)
    return gate


def admitted(found: Named, asked: Serving = BUCKET) -> dict[str, Any]:
    """The InferenceService, as a cluster admits it."""
    service: dict[str, Any] = yaml.safe_load(yaml.safe_dump(inference_service(found, asked)))
    problems = [f"{each.json_path}: {each.message}" for each in validator_of(CRD).iter_errors(service)]
    assert problems == []
    return service


def test_a_cluster_admits_it_and_it_starts_the_predictor(gate: Gate) -> None:
    service = admitted(named(gate.store, f"{NAME}@champion"), Serving("s3://acme/gatehouse", online=True, memory="3Gi"))
    (container,) = service["spec"]["predictor"]["containers"]
    assert container["command"] == ["gatehouse"]
    expected = f"predictor {NAME}:1 --store s3://acme/gatehouse --host 0.0.0.0 --port {PORT} --online"
    assert container["args"] == expected.split()
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "3Gi"}
    paths = {name: container[f"{name}Probe"]["httpGet"]["path"] for name in ("liveness", "readiness", "startup")}
    ready = "/v2/health/ready"
    assert paths == {"liveness": "/v2/health/live", "readiness": ready, "startup": ready}
    assert {"GATEHOUSE_ONLINE_STORE", "AWS_SECRET_ACCESS_KEY"} <= {each["name"] for each in container["env"]}
    assert "value" not in {key for each in container["env"] for key in each}, "a secret is named, never written"


@pytest.mark.parametrize(
    ("stage", "percent", "tagged"), [("champion", 100, False), ("canary", 15, False), ("shadow", 0, True)]
)
def test_traffic_goes_by_the_stage(gate: Gate, stage: str, percent: int, tagged: bool) -> None:
    found = named(gate.store, f"{NAME}:2")
    ledger = SimpleNamespace(model_name=NAME, state=lambda: SimpleNamespace(stage_of=lambda version: stage))
    service = admitted(SimpleNamespace(ledger=ledger, number=found.number, version=found.version))  # type: ignore[arg-type]
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == percent
    annotations = service["metadata"]["annotations"]
    assert annotations["gatehouse/stage"] == stage and annotations["gatehouse/model"] == found.version.model
    assert ("serving.kserve.io/enable-tag-routing" in annotations) is tagged


COMPARED = {"metric": "log_loss", "candidate": 0.5, "champion": 0.502, "worse_by": -0.002, "worst_bound": 0.001}
COMPARED |= {"best_bound": -0.005, "standard_error": 0.002, "units": 800}


def _judged(store: ArtifactStore, stage: str, comparison: dict[str, Any], tolerance: float, measured: bool) -> Any:
    """A version in a stage, with an evaluation that compared it with the champion."""
    metric = comparison["metric"]
    policy = GatePolicy(champion=ChampionRule(metric=metric, tolerance=tolerance))
    intervals = {"candidate": {metric: [0.46, 0.54]}, "champion": {metric: [0.462, 0.542]}}
    files = {"verdict.json": canonical_json({"comparison": comparison, "policy": identity_of(policy)})}
    if measured:
        files["uncertainty.json"] = canonical_json({"unit": "day", "intervals": intervals})
    champion = store.publish("models", NAME, {"a": b"a"})
    evaluation = str(store.publish("evaluations", NAME, files, derived_from={"champion": champion}))
    first = SimpleNamespace(model=str(champion))
    state = SimpleNamespace(stage_of=lambda version: stage, version=lambda number: first, champion=1)
    version = SimpleNamespace(evaluation=evaluation, model="")
    ledger = SimpleNamespace(model_name=NAME, state=lambda: state)
    return SimpleNamespace(ledger=ledger, number=2, version=version, first=first)


@pytest.mark.parametrize("stage", ["shadow", "canary"])
def test_the_plan_is_of_the_margin_that_the_policy_has(store: ArtifactStore, stage: str) -> None:
    found = _judged(store, stage, COMPARED, 0.004, True)
    told, known = plan(store, found, 20), Comparison(**COMPARED)  # type: ignore[arg-type]
    assert (told["unit"], told["margin"], told["confidence"]) == ("day", 0.004, 0.95)
    if stage == "shadow":
        assert told["units"] == paired_units(known, 0.95, 0.004) > 800
    else:
        error = 0.08 / (2 * 1.959963984540054)
        assert told["units"] == pytest.approx(parallel_units(known, (error, error), 0.2, 0.95, 0.004), abs=1)
    found.first.model = "models/other"
    assert "no comparison with the present champion" in plan(store, found, 20)["why"]


@pytest.mark.parametrize(
    ("changed", "tolerance", "measured", "why"),
    [
        ({}, 0.0, True, "its policy tolerates no regression"),
        ({}, 0.004, False, "its evaluation has no intervals"),
        ({"metric": "calibration_error"}, 0.004, True, "cut off at 0"),
        ({"units": None}, 0.004, True, "does not tell how much the metric varies"),
        ({"standard_error": 0.0}, 0.004, True, ""),
    ],
)
def test_a_plan_says_why_it_has_no_number(
    store: ArtifactStore, changed: dict[str, Any], tolerance: float, measured: bool, why: str
) -> None:
    told = plan(store, _judged(store, "canary", COMPARED | changed, tolerance, measured), 20)
    assert why in told["why"] if why else told["units"] >= 0


def test_what_gets_no_requests_and_a_store_that_pods_do_not_reach_are_refused(gate: Gate) -> None:
    gate.run(gate.model(3), policy=MANUAL)
    with pytest.raises(ConfigurationError, match=f"{NAME}:3 is staging: expected champion, canary, shadow"):
        inference_service(named(gate.store, f"{NAME}:3"), BUCKET)
    with pytest.raises(ConfigurationError, match="an address that pods reach"):
        inference_service(named(gate.store, f"{NAME}:1"), Serving(gate.store.address))


def test_the_command_writes_all_of_it(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SimpleNamespace(inputs=[], outputs=[], online=None)
    monkeypatch.setattr(ServedModel, "of", lambda store, text, online: schema)
    asked = ["handoff", f"{NAME}@shadow", "--out", str(tmp_path / "out"), "--pods-store", "gs://acme/gatehouse"]
    ended = CliRunner().invoke(app, [*asked, "--store", gate.store.address])
    assert ended.exception is None and "shadow: no plan, as its evaluation holds no comparison" in ended.output
    service = yaml.safe_load((tmp_path / "out" / "inferenceservice.yaml").read_text())
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == 0
    assert json.loads((tmp_path / "out" / "schema.json").read_text()) == {"inputs": [], "outputs": []}
    assert json.loads((tmp_path / "out" / "plan.json").read_text())["stage"] == "shadow"
