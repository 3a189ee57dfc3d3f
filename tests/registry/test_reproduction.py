"""A model of one process, and of two, made again from the snapshot to the bit; and what is said of one that is not."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.registry.explanation import provenance_of
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.reproduction import NotReproducibleError, Rebuild, Reproduced, Step, beside
from gatehouse.store.store import ArtifactStore
from gatehouse.store.transfer import pull
from gatehouse.training.stage import TrainRequest, train
from tests.registry.gate import NAME, Gate
from tests.small_example import MODEL


def _of_two(store: ArtifactStore, model: str) -> str:
    request: dict[str, Any] = json.loads(json.dumps(provenance_of(store, model)["request"]))
    request["spec"]["parallelism"] = {"processes": 2}
    return train(TrainRequest.model_validate(request), store).model


def _plant(store: ArtifactStore, model: str) -> None:
    for prefix, change in (
        ("measurements", {"environment": {"hardware": "s390x, one core", "threads": {"OMP_NUM_THREADS": "64"}}}),
        ("provenance", {"code": "0" * 64}),
    ):
        key = next(store.objects.list(f"{prefix}/{model}"))
        path = store.objects.local_path(key)
        body = json.loads(path.read_text())
        path.unlink()
        store.record(key, body | change)


def test_a_model_is_made_again_from_the_snapshot_to_the_bit(copy: ArtifactStore, tmp_path: Path) -> None:
    model = Ledger(copy, MODEL).state().versions[0].model
    rebuild = Rebuild(copy, ArtifactStore.open(tmp_path / "clean"))
    result = beside(rebuild, model, rebuild.make(model))
    assert (result.same, result.processes, result.weights) == (True, 1, result.weights_again)
    copied = [step.identity.split("/")[0] for step in rebuild.steps if not step.stage]
    assert sorted(copied) == ["config", "snapshots"], "only what was read of the world is copied"
    stages = [step.stage for step in rebuild.steps if step.stage]
    assert stages == ["compute_features", "retrieve_training_set", "split", "fit_transformation", "train"]


def test_a_model_of_two_processes_is_made_by_two_again_and_another_one_is_told_apart(
    copy: ArtifactStore, tmp_path: Path
) -> None:
    single = Ledger(copy, MODEL).state().versions[0].model
    double, clean = _of_two(copy, single), ArtifactStore.open(tmp_path / "clean")
    inputs = copy.manifest(double).derived_from.values()
    for identity in inputs:
        pull(copy, identity, clean)
    rebuild = Rebuild(copy, clean, rebuilt={identity: identity for identity in inputs})
    result = beside(rebuild, double, rebuild.make(double))
    assert (result.same, result.processes, result.made) == (True, 2, 1)
    assert single != double

    _plant(copy, single)
    other = beside(Rebuild(copy, clean, [Step(single, double, "train", "0" * 64)]), single, double)
    differences = {(change.part, change.name): change.first for change in other.differences}
    assert differences["environment", "threads.OMP_NUM_THREADS"] == "64"
    assert differences["environment", "hardware"] == "s390x, one core"
    assert differences["code of train", "digest"] == "0" * 64
    assert not other.same and other.first == single and other.weights != other.weights_again
    assert 0 < other.mean < other.largest < 0.1


def test_what_nobody_knows_the_making_of_is_not_reproduced(gate: Gate, tmp_path: Path) -> None:
    gate.run(gate.model(1))
    call = ["reproduce", f"{NAME}@champion", "--store", gate.store.address]
    with pytest.raises(NotReproducibleError, match=r"models/delays/.*the stage train"):
        raise CliRunner().invoke(app, call).exception or AssertionError
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(ConfigurationError, match="expected an empty folder"):
        raise CliRunner().invoke(app, [*call, "--into", str(tmp_path / "full")]).exception or AssertionError


@pytest.mark.parametrize("same", [True, False])
def test_the_command_ends_with_one_where_the_model_is_another(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    gate.run(gate.model(1))
    change = {"part": "environment", "name": "threads.cpus", "first": "2", "second": "64"}
    body = {"model": "models/a", "again": "models/b", "weights": "a", "weights_again": "b", "processes": 2}
    result = Reproduced.model_validate(
        body | {"same": same, "copied": 2, "made": 5, "largest": 0.25, "differences": () if same else (change,)}
    )
    monkeypatch.setattr("gatehouse.cli.models.reproduction.reproduce", lambda *_: result)
    result = CliRunner().invoke(app, ["reproduce", f"{NAME}@champion", "--store", gate.store.address])
    assert result.exit_code == (0 if same else 1)
    assert ("to the bit" in result.output) == same and ("threads.cpus" in result.output) != same
    assert ("0.25" in result.output) != same
