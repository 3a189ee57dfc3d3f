"""The handoff of a version: an InferenceService that a cluster admits, and its schema."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.registry.handoff import PORT, Serving, inference_service
from gatehouse.registry.naming import VersionName, named
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.server.inference import ServedModel
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


def admitted(version: VersionName, serving: Serving = BUCKET) -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load(yaml.safe_dump(inference_service(version, serving)))
    problems = [f"{error.json_path}: {error.message}" for error in validator_of(CRD).iter_errors(service)]
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
    assert {"GATEHOUSE_ONLINE_STORE", "AWS_SECRET_ACCESS_KEY"} <= {variable["name"] for variable in container["env"]}
    assert "value" not in {key for variable in container["env"] for key in variable}, "a secret is named, never written"


@pytest.mark.parametrize(
    ("stage", "percent", "tagged"), [("champion", 100, False), ("canary", 15, False), ("shadow", 0, True)]
)
def test_traffic_goes_by_the_stage(gate: Gate, stage: str, percent: int, tagged: bool) -> None:
    chosen = named(gate.store, f"{NAME}:2")
    ledger = SimpleNamespace(model_name=NAME, state=lambda: SimpleNamespace(stage_of=lambda version: stage))
    service = admitted(SimpleNamespace(ledger=ledger, number=chosen.number, version=chosen.version))  # type: ignore[arg-type]
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == percent
    annotations = service["metadata"]["annotations"]
    assert annotations["gatehouse/stage"] == stage and annotations["gatehouse/model"] == chosen.version.model
    assert ("serving.kserve.io/enable-tag-routing" in annotations) is tagged


def test_what_gets_no_requests_and_a_store_that_pods_do_not_reach_are_refused(gate: Gate) -> None:
    gate.run(gate.model(3), policy=MANUAL)
    with pytest.raises(ConfigurationError, match=f"{NAME}:3 is staging: expected champion, canary, shadow"):
        inference_service(named(gate.store, f"{NAME}:3"), BUCKET)
    with pytest.raises(ConfigurationError, match="an address that pods reach"):
        inference_service(named(gate.store, f"{NAME}:1"), Serving(gate.store.address))


def test_the_command_writes_all_of_it(gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = SimpleNamespace(inputs=[], outputs=[], online=None)
    monkeypatch.setattr(ServedModel, "of", lambda store, text, online: schema)
    arguments = ["handoff", f"{NAME}@shadow", "--out", str(tmp_path / "out"), "--pods-store", "gs://acme/gatehouse"]
    ended = CliRunner().invoke(app, [*arguments, "--store", gate.store.address])
    assert ended.exception is None
    service = yaml.safe_load((tmp_path / "out" / "inferenceservice.yaml").read_text())
    assert service["spec"]["predictor"]["canaryTrafficPercent"] == 0
    assert json.loads((tmp_path / "out" / "schema.json").read_text()) == {"inputs": [], "outputs": []}
