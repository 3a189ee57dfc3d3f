"""The ledger in a Kubeflow Model Registry: versions, artifacts, aliases, states; completion after faults; repair."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.registry import projection
from gatehouse.registry.projection import project
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.store.reference import Reference
from gatehouse.store.run import RUN_ID, events
from tests.registry.gate import MANUAL, NAME, Gate
from tests.stand_ins import model_registry_api
from tests.stand_ins.model_registry_api import ModelRegistry

_PATH = "/api/model_registry/v1alpha3"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelRegistry]:
    """A Model Registry that the environment names; pages are small, and nobody waits between attempts."""
    with model_registry_api.model_registry() as served:
        monkeypatch.setenv("GATEHOUSE_MODEL_REGISTRY", served.url)
        monkeypatch.setenv("GATEHOUSE_MODEL_REGISTRY_AUTHOR", "ada")
        monkeypatch.setattr(projection, "_PAGE", 2)
        monkeypatch.setattr(projection, "_BACKOFF", 0.0)
        monkeypatch.setenv(RUN_ID, "run-1")
        yield served


def _versions(registry: ModelRegistry) -> dict[str, dict[str, Any]]:
    return {version["name"]: version for version in registry.resources["model_versions"].values()}


def _texts(resource: dict[str, Any]) -> dict[str, str]:
    return {name: value.get("string_value", "-") for name, value in resource["customProperties"].items()}


def _labels(version: dict[str, Any]) -> list[str]:
    """Properties without a value, which the registry's pages show as labels."""
    return [name for name, text in _texts(version).items() if not text]


def _stages(registry: ModelRegistry) -> dict[str, tuple[str, list[str]]]:
    return {name: (version["state"], _labels(version)) for name, version in _versions(registry).items()}


def _warnings(gate: Gate) -> list[str]:
    return [event.body["message"] for _, event in events(gate.store, "run-1") if event.event == "warned"]


def test_a_model_that_passed_has_a_version_with_its_origin_and_an_artifact(gate: Gate, registry: ModelRegistry) -> None:
    model = gate.model(1)
    gate.run(model)
    (registered,) = registry.resources["registered_models"].values()
    assert (registered["name"], registered["owner"]) == (NAME, "ada")
    version, texts = _versions(registry)["1"], _texts(_versions(registry)["1"])
    assert (version["author"], version["state"], _labels(version)) == ("ada", "LIVE", ["staging", "champion"])
    assert (texts["gatehouse.model"], texts["gatehouse.verdict"], texts["gatehouse.run"]) == (model, "pass", "run-1")
    assert texts["gatehouse.lineage.training-sets.delay"] == gate.training_set
    assert texts["gatehouse.lineage.snapshots.raw"].startswith("snapshots/raw/sha256-")
    assert version["customProperties"]["test_roc_auc"]["double_value"] == 0.73
    (artifact,) = registry.resources["model_artifacts"].values()
    assert artifact["uri"] == gate.store.address_of(model)
    assert _texts(artifact)["gatehouse.digest"] == Reference.parse(model).digest
    assert (artifact["modelSourceKind"], artifact["modelSourceId"]) == ("pipelines", "run-1")
    gate.run(gate.model(2), good=False)
    assert list(_versions(registry)) == ["1"]
    before = len(registry.requests)
    gate.run(gate.model(2), good=False)
    assert len(registry.requests) == before, "a repeat asks nothing"
    assert not _warnings(gate)


def test_labels_and_states_follow_the_ledger_and_entries_of_people_stay(gate: Gate, registry: ModelRegistry) -> None:
    gate.run(gate.model(1))
    note = {"metadataType": "MetadataStringValue", "string_value": "grace"}
    _versions(registry)["1"]["customProperties"]["reviewed by"] = note
    gate.run(gate.model(2))
    gate.run(gate.model(3), policy=MANUAL)
    assert _stages(registry) == {"1": ("LIVE", []), "2": ("LIVE", ["champion"]), "3": ("LIVE", ["staging"])}
    promote(PromoteRequest(model_name=NAME, action="rollback", version=2), gate.store)
    promote(PromoteRequest(model_name=NAME, action="archive", version=3), gate.store)
    assert _stages(registry) == {"1": ("LIVE", ["champion"]), "2": ("ARCHIVED", []), "3": ("ARCHIVED", [])}
    promote(PromoteRequest(model_name=NAME, version=2, override=True, reason="it was not the model"), gate.store)
    assert _stages(registry) == {"1": ("LIVE", []), "2": ("LIVE", ["champion"]), "3": ("ARCHIVED", [])}
    assert _versions(registry)["1"]["customProperties"]["reviewed by"] == note


@pytest.mark.parametrize("fault", [503, "lost", 400])
def test_a_fault_at_any_request_is_made_good_and_doubles_nothing(
    gate: Gate, registry: ModelRegistry, fault: int | str
) -> None:
    """A transient fault is tried again at once; after a refused request, the next projection goes on."""
    gate.run(gate.model(1))
    for at in range(len(registry.requests)):
        registry.resources, registry.parents = ModelRegistry().resources, {}
        shutil.rmtree(Path(gate.store.address) / "tracking")
        registry.faults.extend([None] * at + [fault])
        project(gate.store, NAME, gate.state)
        registry.faults.clear()
        project(gate.store, NAME, gate.state)
        assert [model["name"] for model in registry.resources["registered_models"].values()] == [NAME]
        assert _stages(registry) == {"1": ("LIVE", ["staging", "champion"])}
        assert len(registry.resources["model_artifacts"]) == 1
    assert bool(_warnings(gate)) == (fault == 400)


def test_a_registry_that_refuses_leaves_the_decision_and_a_warning(
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
    # The registry's own search by name would return this one: `_` is a wildcard there.
    registry.handle("POST", f"{_PATH}/registered_models", b'{"name": "delay_"}', "")
    registry.handle("POST", f"{_PATH}/registered_models", f'{{"name": "{NAME}"}}'.encode(), "")
    foreign = b'{"name": "1", "registeredModelId": "2", "description": "by hand"}'
    registry.handle("POST", f"{_PATH}/model_versions", foreign, "")
    gate.run(gate.model(1))
    (warned,) = _warnings(gate)
    assert "Version 1 of delays" in warned and "not ours" in warned
    assert _versions(registry)["1"]["description"] == "by hand"


def test_a_deleted_entry_is_made_again_on_demand(gate: Gate, registry: ModelRegistry) -> None:
    gate.run(gate.model(1))
    registry.resources["model_artifacts"].clear()
    gate.run(gate.model(1))
    assert not registry.resources["model_artifacts"], "nothing changed in the ledger"
    result = CliRunner().invoke(app, ["project", "--store", gate.store.address])
    assert result.exit_code == 0, result.output
    assert len(registry.resources["model_artifacts"]) == 1 and "The Model Registry shows delays" in result.stdout
