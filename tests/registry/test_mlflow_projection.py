"""The ledger in MLflow, on a real SQLite store: versions, aliases, completion after a kill."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pytest

from gatehouse.registry.projection import project
from gatehouse.registry.stage import PromoteRequest, promote
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from tests.registry.gate import MANUAL, NAME, Gate, make_gate
from tests.tracking.shown import client_of, runs_of

BOTH = {"staging": "1", "champion": "1"}


@pytest.fixture
def shown(
    store: ArtifactStore, with_mlflow: Callable[[ArtifactStore], ArtifactStore], monkeypatch: pytest.MonkeyPatch
) -> Gate:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return make_gate(with_mlflow(store))


def _aliases(gate: Gate) -> dict[str, str]:
    with client_of(gate.store) as client:
        return {name: str(version) for name, version in client.get_registered_model(NAME).aliases.items()}


def _versions(gate: Gate) -> dict[str, Any]:
    with client_of(gate.store) as client:
        return {str(version.version): version for version in client.search_model_versions(f"name = '{NAME}'")}


def _runs(gate: Gate, query: str = "") -> list[Any]:
    return runs_of(gate.store, NAME, query)


def test_a_registered_model_has_version_lineage_run_and_aliases(shown: Gate) -> None:
    model = shown.model(1)
    shown.run(model)
    version = _versions(shown)["1"]
    assert version.source == shown.store.address_of(model)
    assert version.tags["gatehouse.model"] == model
    assert version.tags["gatehouse.lineage.training-sets.delay"] == shown.training_set
    assert version.tags["gatehouse.lineage.datasets.flights"].startswith("datasets/flights/sha256-")
    (run,) = _runs(shown)
    assert (_aliases(shown), version.run_id) == (BOTH, run.info.run_id)
    assert run.data.params == {"seed": "1", "net.depth": "2"}
    assert run.data.metrics["test_roc_auc"] == 0.73
    assert (run.data.tags["gatehouse.verdict"], run.info.status) == ("pass", "FINISHED")
    weak = shown.model(2)
    shown.run(weak, good=False)
    assert list(_versions(shown)) == ["1"]
    (run,) = _runs(shown, f"tags.`gatehouse.reference` = '{weak}'")
    assert run.data.tags["gatehouse.verdict"] == "refused" and "found 0.6." in run.data.tags["gatehouse.reasons"]


def test_aliases_follow_the_ledger(shown: Gate) -> None:
    def act(**request: Any) -> None:
        promote(PromoteRequest(model_name=NAME, **request), shown.store)

    shown.run(shown.model(1))
    shown.run(shown.model(2))
    shown.run(shown.model(3), policy=MANUAL)
    assert _aliases(shown) == {"staging": "3", "champion": "2"}
    act(version=1, to="canary", override=True, reason="a look back")
    act(version=3, to="shadow")
    assert _aliases(shown) == {"staging": "3", "shadow": "3", "canary": "1", "champion": "2"}
    act(action="rollback", version=2)
    act(action="archive", version=3)
    assert _aliases(shown) == {"champion": "1"}
    status = {number: version.tags["gatehouse.status"] for number, version in _versions(shown).items()}
    assert status == {"1": "champion", "2": "rolled back", "3": "archived"}


@pytest.mark.parametrize(
    "step",
    [
        "gatehouse.registry.stage.project",
        *(f"mlflow.MlflowClient.{call}" for call in ("create_run", "log_batch", "set_terminated")),
        *(f"mlflow.MlflowClient.{call}" for call in ("create_model_version", "set_registered_model_alias")),
    ],
)
def test_a_projection_that_was_killed_is_completed_by_the_next_run(
    shown: Gate, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    model, name = shown.model(1), step.rpartition(".")[2]
    call = getattr(mlflow.MlflowClient, name, lambda *arguments: None)

    def killed(*arguments: Any, **named: Any) -> None:
        call(*arguments, **named)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, killed)
        with pytest.raises(KeyboardInterrupt):
            shown.run(model)
    assert shown.state.champion == 1
    shown.run(model)
    assert (list(_versions(shown)), _aliases(shown)) == (["1"], BOTH)
    (run,) = _runs(shown)
    assert run.info.status == "FINISHED"
    with client_of(shown.store) as client:
        assert len(client.get_metric_history(run.info.run_id, "log_loss")) == 3


_AGAIN = """
import sys
from tests.registry.gate import Gate
from gatehouse.store.store import ArtifactStore
gate = Gate(ArtifactStore.open(sys.argv[1]), *sys.argv[3:])
result = gate.register(sys.argv[2], gate.evaluate(sys.argv[2], gate.resolve(sys.argv[2])))
print(result.decision)
"""


def _again(gate: Gate, model: str, address: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", _AGAIN, address, model, gate.training_set, gate.split]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def test_a_deleted_database_is_written_anew(shown: Gate) -> None:
    model = shown.model(1)
    shown.run(model)
    (Path(shown.store.address) / "mlflow" / "mlflow.db").unlink()
    shown.run(model)
    assert _aliases(shown) == BOTH


def test_a_server_that_fails_leaves_the_decision_and_a_warning(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    project(shown.store, NAME, shown.state)
    assert not list(shown.store.objects.list("tracking")), "there is nothing to show yet"
    monkeypatch.setenv(RUN_ID, "run")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/nowhere/mlflow.db")
    model = shown.model(1)
    assert shown.run(model).decision == "approved"
    (warned,) = [event for _, event in events(shown.store, "run") if event.event == "warned"]
    assert "MLflow could not be written" in warned.body["message"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    shown.run(model)
    assert _aliases(shown) == BOTH


def test_projecting_twice_at_once_makes_one_version(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shown.model(1)
    with monkeypatch.context() as patch:
        patch.setattr("gatehouse.registry.stage.project", lambda *_: None)
        shown.run(model)
    racers = [_again(shown, model, shown.store.address) for _ in range(2)]
    assert [racer.communicate(timeout=120)[0].startswith("approved") for racer in racers] == [True, True]
    assert (list(_versions(shown)), len(_runs(shown))) == (["1"], 1)


def test_markers_name_the_server_but_not_its_credentials(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret@mlflow.example/")
    tracking = tracking_of(shown.store)
    assert tracking is not None
    tracking.mark_shown("x")
    body = json.loads(shown.store.objects.get_bytes(f"tracking/{tracking.name}/x.json"))
    assert "secret" not in json.dumps(body)
