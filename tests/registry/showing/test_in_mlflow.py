"""The ledger in MLflow, on a real SQLite store: versions, aliases, completion after a kill, no needless import."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gatehouse.registry.ledger import Ledger
from gatehouse.registry.projection import project
from gatehouse.registry.promoting.stage import PromoteRequest, promote
from gatehouse.store.run import RUN_ID, events
from gatehouse.store.store import ArtifactStore
from gatehouse.tracking.mlflow_client import tracking_of
from tests.registry.gate import MANUAL, NAME, Gate, make_gate


@pytest.fixture
def shown(
    store: ArtifactStore, with_mlflow: Callable[[ArtifactStore], ArtifactStore], monkeypatch: pytest.MonkeyPatch
) -> Gate:
    """A gate whose ledger is shown in the store's own MLflow database."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return make_gate(with_mlflow(store))


def _aliases(store: ArtifactStore) -> dict[str, str]:
    with _client(store) as client:
        aliases = client.get_registered_model(NAME).aliases
    return {name: str(version) for name, version in aliases.items()}


@contextmanager
def _client(store: ArtifactStore) -> Iterator[Any]:
    tracking = tracking_of(store)
    assert tracking is not None
    with tracking.client() as client:
        yield client


def _versions(store: ArtifactStore) -> dict[str, Any]:
    with _client(store) as client:
        return {str(each.version): each for each in client.search_model_versions(f"name = '{NAME}'")}


def test_a_registered_model_has_version_lineage_run_and_aliases(shown: Gate) -> None:
    model = shown.model(1)
    shown.run(model)
    version = _versions(shown.store)["1"]
    assert version.source == shown.store.address_of(model)
    assert version.tags["gatehouse.model"] == model
    assert version.tags["gatehouse.lineage.training-sets.delay"] == shown.training_set
    assert version.tags["gatehouse.lineage.datasets.flights"].startswith("datasets/flights/sha256-")
    assert _aliases(shown.store) == {"staging": "1", "champion": "1"}
    with _client(shown.store) as client:
        run = client.get_run(version.run_id)
    assert run.data.params == {"seed": "1", "net.depth": "2"}
    assert run.data.metrics["test_roc_auc"] == 0.73
    assert (run.data.tags["gatehouse.verdict"], run.info.status) == ("pass", "FINISHED")


def test_aliases_follow_the_ledger(shown: Gate) -> None:
    shown.run(shown.model(1))
    shown.run(shown.model(2))
    shown.run(shown.model(3), policy=MANUAL)
    assert _aliases(shown.store) == {"staging": "3", "champion": "2"}
    promote(PromoteRequest(model_name=NAME, version=1, to="canary", override=True, reason="a look back"), shown.store)
    promote(PromoteRequest(model_name=NAME, version=3, to="shadow"), shown.store)
    assert _aliases(shown.store) == {"staging": "3", "shadow": "3", "canary": "1", "champion": "2"}
    promote(PromoteRequest(model_name=NAME, action="rollback", version=2), shown.store)
    promote(PromoteRequest(model_name=NAME, action="archive", version=3), shown.store)
    assert _aliases(shown.store) == {"champion": "1"}
    status = {number: each.tags["gatehouse.status"] for number, each in _versions(shown.store).items()}
    assert status == {"1": "champion", "2": "rolled back", "3": "archived"}


def test_a_refused_candidate_shows_as_a_run_with_its_reasons(shown: Gate) -> None:
    shown.run(shown.model(1))
    weak = shown.model(2)
    shown.run(weak, good=False)
    assert list(_versions(shown.store)) == ["1"]
    with _client(shown.store) as client:
        experiment = client.get_experiment_by_name(NAME)
        runs = client.search_runs([experiment.experiment_id], f"tags.`gatehouse.reference` = '{weak}'")
    assert [run.data.tags["gatehouse.verdict"] for run in runs] == ["refused"]
    assert "found 0.6. Look for better features" in runs[0].data.tags["gatehouse.reasons"]


def test_what_was_killed_between_ledger_and_projection_is_shown_by_the_next_run(
    shown: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shown.model(1)

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("gatehouse.registry.registering.stage.project", killed)
    with pytest.raises(KeyboardInterrupt):
        shown.run(model)
    assert Ledger(shown.store, NAME).state().champion == 1
    assert _versions(shown.store) == {}
    monkeypatch.undo()
    shown.run(model)
    assert _aliases(shown.store) == {"staging": "1", "champion": "1"}


@pytest.mark.parametrize(
    "step", ["create_run", "log_batch", "set_terminated", "create_model_version", "set_registered_model_alias"]
)
def test_a_projection_that_was_killed_half_way_is_completed(
    shown: Gate, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    import mlflow

    model = shown.model(1)
    real = getattr(mlflow.MlflowClient, step)

    def killed(self: Any, *arguments: Any, **named: Any) -> None:
        real(self, *arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(mlflow.MlflowClient, step, killed)
    with pytest.raises(KeyboardInterrupt):
        shown.run(model)
    monkeypatch.undo()
    shown.run(model)
    assert list(_versions(shown.store)) == ["1"]
    assert _aliases(shown.store) == {"staging": "1", "champion": "1"}
    with _client(shown.store) as client:
        experiment = client.get_experiment_by_name(NAME)
        runs = client.search_runs([experiment.experiment_id])
        assert [run.info.status for run in runs] == ["FINISHED"]
        assert len(client.get_metric_history(runs[0].info.run_id, "log_loss")) == 3


_AGAIN = """
import sys
from tests.registry.gate import Gate
from gatehouse.store.store import ArtifactStore
gate = Gate(ArtifactStore.open(sys.argv[1]), *sys.argv[3:])
result = gate.register(sys.argv[2], gate.evaluate(sys.argv[2], gate.resolve(sys.argv[2])))
print(result.decision, sorted({"mlflow", "torch", "feast", "pandas", "numpy"} & set(sys.modules)))
"""


def _again(gate: Gate, model: str, address: str) -> str:
    command = [sys.executable, "-c", _AGAIN, address, model, gate.training_set, gate.split]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]).stdout


def test_an_unchanged_run_imports_nothing_heavy_also_in_a_copied_store(shown: Gate, tmp_path: Path) -> None:
    model = shown.model(1)
    shown.run(model)
    assert _again(shown, model, shown.store.address) == "approved []\n"
    shutil.copytree(shown.store.address, tmp_path / "copy")
    assert _again(shown, model, str(tmp_path / "copy")) == "approved []\n"


def test_a_deleted_database_is_written_anew(shown: Gate) -> None:
    model = shown.model(1)
    shown.run(model)
    (Path(shown.store.address) / "mlflow" / "mlflow.db").unlink()
    shown.run(model)
    assert _aliases(shown.store) == {"staging": "1", "champion": "1"}


def test_a_server_that_fails_leaves_the_decision_and_a_warning(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_ID, "run")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:////proc/nowhere/mlflow.db")
    model = shown.model(1)
    assert shown.run(model).decision == "approved"
    warned = [event for _, event in events(shown.store, "run") if event.event == "warned"]
    assert len(warned) == 1 and "MLflow could not be written" in warned[0].body["message"]
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    shown.run(model)
    assert _aliases(shown.store) == {"staging": "1", "champion": "1"}


def test_projecting_twice_at_once_makes_one_version(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    model = shown.model(1)
    with monkeypatch.context() as patch:
        patch.setattr("gatehouse.registry.registering.stage.project", lambda *_: None)
        shown.run(model)
    command = [sys.executable, "-c", _AGAIN, shown.store.address, model, shown.training_set, shown.split]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) for _ in range(2)]
    assert [racer.wait(timeout=120) for racer in racers] == [0, 0]
    assert list(_versions(shown.store)) == ["1"]
    with _client(shown.store) as client:
        experiment = client.get_experiment_by_name(NAME)
        assert len(client.search_runs([experiment.experiment_id])) == 1


def test_a_store_without_any_version_shows_nothing(shown: Gate) -> None:
    project(shown.store, NAME, Ledger(shown.store, NAME).state())
    assert not list(shown.store.objects.list("tracking"))


def test_markers_name_the_server_but_not_its_credentials(shown: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret@mlflow.example/")
    tracking = tracking_of(shown.store)
    assert tracking is not None
    tracking.mark_shown("x")
    body = json.loads(shown.store.objects.get_bytes(f"tracking/{tracking.name}/x.json"))
    assert "secret" not in json.dumps(body)
