"""The ledger in a Kubeflow Model Registry: versions, artifacts, aliases, states; completion after faults; repair."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.registry import model_registry as module
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.projection import project
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, events
from tests.registry.gate import MANUAL, NAME, Gate
from tests.stand_ins.model_registry_api import ModelRegistry, model_registry


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRegistry]:
    """A Model Registry that the environment names; pages are small, and nobody waits between attempts."""
    with model_registry() as served:
        monkeypatch.setenv("GATEHOUSE_MODEL_REGISTRY", served.url)
        monkeypatch.setenv("GATEHOUSE_MODEL_REGISTRY_AUTHOR", "ada")
        monkeypatch.setattr(module, "_PAGE", 2)
        monkeypatch.setattr(module, "_BACKOFF", 0.0)
        monkeypatch.setenv(RUN_ID, "run-1")
        yield served


def _versions(registry: ModelRegistry) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in registry.resources["model_versions"].values()}


def _labels(version: dict[str, Any]) -> list[str]:
    """Properties without a value, which the registry's pages show as labels."""
    return [name for name, value in version["customProperties"].items() if value.get("string_value") == ""]


def _texts(resource: dict[str, Any]) -> dict[str, str]:
    return {name: value.get("string_value", "") for name, value in resource["customProperties"].items()}


def _warnings(gate: Gate) -> list[str]:
    return [event.body["message"] for _, event in events(gate.store, "run-1") if event.event == "warned"]


def test_a_model_that_passed_has_a_version_with_its_origin_and_an_artifact(gate: Gate, registry: ModelRegistry) -> None:
    model = gate.model(1)
    gate.run(model)
    (registered,) = registry.resources["registered_models"].values()
    assert (registered["name"], registered["owner"]) == (NAME, "ada")
    version, known = _versions(registry)["1"], _texts(_versions(registry)["1"])
    assert (version["author"], version["state"], _labels(version)) == ("ada", "LIVE", ["staging", "champion"])
    assert (known["gatehouse.model"], known["gatehouse.verdict"], known["gatehouse.run"]) == (model, "pass", "run-1")
    assert known["gatehouse.lineage.training-sets.delay"] == gate.training_set
    assert known["gatehouse.lineage.snapshots.raw"].startswith("snapshots/raw/sha256-")
    assert version["customProperties"]["test_roc_auc"]["double_value"] == 0.73
    (artifact,) = registry.resources["model_artifacts"].values()
    assert artifact["uri"] == gate.store.address_of(model)
    assert _texts(artifact)["gatehouse.digest"] == Reference.parse(model).digest
    assert (artifact["modelSourceKind"], artifact["modelSourceId"]) == ("pipelines", "run-1")
    assert not _warnings(gate)


def test_a_refused_candidate_is_not_shown_and_a_repeat_asks_nothing(gate: Gate, registry: ModelRegistry) -> None:
    gate.run(gate.model(1))
    gate.run(gate.model(2), good=False)
    assert list(_versions(registry)) == ["1"]
    before = len(registry.requests)
    gate.run(gate.model(2), good=False)
    assert len(registry.requests) == before


def test_labels_and_states_follow_promotion_rollback_and_archive(gate: Gate, registry: ModelRegistry) -> None:
    for seed in (1, 2):
        gate.run(gate.model(seed))
    gate.run(gate.model(3), policy=MANUAL)
    assert {name: _labels(each) for name, each in _versions(registry).items()} == {
        "1": [],
        "2": ["champion"],
        "3": ["staging"],
    }
    promote(PromoteRequest(model_name=NAME, action="rollback", version=2), gate.store)
    promote(PromoteRequest(model_name=NAME, action="archive", version=3), gate.store)
    shown = {name: (each["state"], _labels(each)) for name, each in _versions(registry).items()}
    assert shown == {"1": ("LIVE", ["champion"]), "2": ("ARCHIVED", []), "3": ("ARCHIVED", [])}
    promote(PromoteRequest(model_name=NAME, version=2, override=True, reason="it was not the model"), gate.store)
    shown = {name: (each["state"], _labels(each)) for name, each in _versions(registry).items()}
    assert shown["2"] == ("LIVE", ["champion"]) and shown["1"] == ("LIVE", [])


def test_what_people_added_stays(gate: Gate, registry: ModelRegistry) -> None:
    gate.run(gate.model(1))
    noted = {"reviewed by": {"metadataType": "MetadataStringValue", "string_value": "grace"}}
    _versions(registry)["1"]["customProperties"] |= noted
    gate.run(gate.model(2))
    held = _versions(registry)["1"]["customProperties"]
    assert held["reviewed by"] == noted["reviewed by"] and "champion" not in held


@pytest.mark.parametrize("fault", [503, "lost", 400])
def test_a_fault_at_any_request_is_made_good_and_doubles_nothing(
    gate: Gate, registry: ModelRegistry, fault: int | str
) -> None:
    """What may be transient is tried again at once; where a request was refused, the next projection goes on."""
    gate.run(gate.model(1))
    state, at = Ledger(gate.store, NAME).state(), 0
    whole = len(registry.requests)
    while at < whole:
        registry.resources, registry.parents = ModelRegistry().resources, {}
        shutil.rmtree(Path(gate.store.address) / "tracking")
        registry.faults.extend([None] * at + [fault])
        project(gate.store, NAME, state)
        registry.faults.clear()
        project(gate.store, NAME, state)
        assert [each["name"] for each in registry.resources["registered_models"].values()] == [NAME]
        assert {name: _labels(each) for name, each in _versions(registry).items()} == {"1": ["staging", "champion"]}
        assert len(registry.resources["model_artifacts"]) == 1
        at += 1
    assert bool(_warnings(gate)) == (fault == 400)


def test_a_registry_that_is_away_leaves_the_decision_and_a_warning(
    gate: Gate, registry: ModelRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.token = "secret-token"
    assert gate.run(gate.model(1)).decision == "approved"
    (warned,) = _warnings(gate)
    assert "answered 401 to GET registered_models" in warned and "GATEHOUSE_MODEL_REGISTRY names it" in warned
    monkeypatch.setenv("GATEHOUSE_MODEL_REGISTRY_TOKEN", "secret-token")
    gate.run(gate.model(1))
    assert list(_versions(registry)) == ["1"]


def test_a_version_of_somebody_else_is_not_written_over(gate: Gate, registry: ModelRegistry) -> None:
    # The registry's own search by name would take this one for ours: `_` is a wildcard there.
    registry.handle("POST", "/api/model_registry/v1alpha3/registered_models", b'{"name": "delay_"}', "")
    registry.handle("POST", "/api/model_registry/v1alpha3/registered_models", f'{{"name": "{NAME}"}}'.encode(), "")
    theirs = b'{"name": "1", "registeredModelId": "2", "description": "by hand"}'
    registry.handle("POST", "/api/model_registry/v1alpha3/model_versions", theirs, "")
    gate.run(gate.model(1))
    (warned,) = _warnings(gate)
    assert "Version 1 of delays in the Model Registry" in warned and "not ours" in warned
    assert _versions(registry)["1"]["description"] == "by hand"


def test_what_was_deleted_there_is_made_again_on_demand(gate: Gate, registry: ModelRegistry) -> None:
    gate.run(gate.model(1))
    registry.resources["model_artifacts"].clear()
    gate.run(gate.model(1))
    assert not registry.resources["model_artifacts"], "nothing changed in the ledger"
    said = CliRunner().invoke(app, ["project", "--store", gate.store.address])
    assert said.exit_code == 0, said.output
    assert len(registry.resources["model_artifacts"]) == 1 and "The Model Registry shows delays" in said.stdout


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "registered_models", "{}", 422),
        ("POST", "registered_models", '{"name": "m", "colour": "red"}', 400),
        ("POST", "registered_models", '{"name": "m", "state": "GONE"}', 400),
        ("POST", "registered_models", "[", 400),
        ("POST", "model_versions", '{"name": "1"}', 422),
        ("POST", "model_versions", '{"name": "1", "registeredModelId": "77"}', 404),
        ("PATCH", "registered_models/1", '{"name": "other"}', 400),
        ("GET", "registered_models?pageSize=many", "", 400),
        ("GET", "registered_models?nextPageToken=!", "", 500),
        ("GET", "registered_model", "", 400),
        ("GET", "registered_model?name=absent", "", 404),
        ("GET", "registered_models/x", "", 400),
        ("DELETE", "registered_models/1", "", 404),
    ],
)
def test_the_stand_in_refuses_what_the_registry_refuses(method: str, path: str, body: str, status: int) -> None:
    registry = ModelRegistry()
    assert registry.handle(method, f"/api/model_registry/v1alpha3/{path}", body.encode(), "")[0] == status
