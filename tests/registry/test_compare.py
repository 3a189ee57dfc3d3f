"""Versions with their numbers and tags, and by lineage; and how two differ."""

from itertools import chain

import pytest
from mlflow.utils.validation import _validate_tag_name
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.notebook.store import Store
from gatehouse.registry.explanation import compare, numbers_of
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promotion import tag
from gatehouse.store.canonical import canonical_json
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate, make_gate


@pytest.fixture
def two(gate: Gate) -> Gate:
    gate.run(gate.model(1))
    other = make_gate(gate.store, rows="1,3")
    other.run(other.model(2))
    return other


def test_versions_are_rows_of_a_data_frame_and_are_found_by_lineage(two: Gate) -> None:
    tag(two.store, NAME, 1, {"season": "winter"})
    rows = Store(two.store).models(NAME).to_pandas()
    assert rows.query("roc_auc > 0.7").sort_values("model")["stage"].tolist() == ["replaced", "champion"]
    assert rows.loc[rows["tags.season"] == "winter", ["model", "by"]].values.tolist() == [[f"{NAME}:1", "ada"]]
    assert Store(two.store).models().to_pandas().equals(rows)
    snapshot = two.store.manifest(two.training_set).derived_from["snapshot"]
    listed = CliRunner().invoke(app, ["list", "--trained-on", snapshot, "--store", two.store.address]).output
    assert f"{NAME}:2" in listed and f"{NAME}:1" not in listed


@pytest.mark.parametrize("name", ["", " ", "/a", "a/", "../a", ".", "x" * 251, "a\nb"])
def test_a_tag_that_mlflow_would_not_take_is_refused(two: Gate, name: str) -> None:
    with pytest.raises(ConfigurationError):
        tag(two.store, NAME, 1, {name: "x"})
    for good in ("season: of. 3-a_b", "team/owner", "-x", ".hid"):
        _validate_tag_name(good)
        tag(two.store, NAME, 1, {good: "x"})


def test_two_versions_differ_in_data_settings_and_modules_of_code(two: Gate) -> None:
    for number, digest in ((1, "a"), (2, "b")):
        model = Ledger(two.store, NAME).state().versions[number - 1].model
        (key,) = two.store.objects.list(f"provenance/{model}")
        two.store.objects.local_path(key).unlink()
        two.store.append(f"provenance/{model}", {"code": digest * 64})
        two.store.record(f"code/{digest * 64}.json", {"modules": {"m": digest, "n": "same"}})
    result = compare(two.store, ":1", "@champion")
    changed = {(change.part, change.name) for change in result.changes}
    assert {("data", "datasets/flights"), ("data", "snapshots/raw"), ("features", "training-sets/delay")} <= changed
    assert ("configuration", "seed") in changed and not result.same_test
    code = [(change.name, change.first, change.second) for change in result.changes if change.part == "code"]
    assert code == [("modules.m", "a", "b")]
    values = {pair.name: pair.first and pair.first.value for pair in result.numbers}
    assert values == {"roc_auc": 0.73, "log_loss": 0.49}
    assert compare(two.store, ":1", ":1").changes == ()


def test_numbers_have_the_intervals_of_the_evaluation_and_the_objective_comes_first(gate: Gate) -> None:
    intervals = {"candidate": {"roc_auc": [0.6, 0.8], "calibration_error": [0.0, 0.0083]}}
    files = {
        "metrics.json": canonical_json({"candidate": {"roc_auc": 0.7, "brier": 0.2, "calibration_error": 0.0539}}),
        "uncertainty.json": canonical_json({"intervals": intervals}),
    }
    numbers = numbers_of(gate.store, str(gate.store.publish("evaluations", NAME, files)))
    assert [(number.name, number.low, number.high) for number in numbers] == [
        ("brier", None, None),
        ("calibration_error", None, None),  # That interval is of the true error.
        ("roc_auc", 0.6, 0.8),
    ]
    metrics = {"metrics.json": canonical_json({"candidate": {"mae": 2.0, "rmse": 3.0, "r2": 0.1}})}
    evaluation = gate.store.publish("evaluations", NAME, metrics, details={"task": "regression"})
    assert [number.name for number in numbers_of(gate.store, str(evaluation))] == ["rmse", "mae", "r2"]


@pytest.mark.parametrize("erased", [True, False])
def test_versions_without_evaluations_are_compared_by_what_made_them(gate: Gate, erased: bool) -> None:
    for seed in (1, 2):
        gate.run(gate.model(seed))
    assert compare(gate.store, ":1", ":2").same_test
    first, *rest = gate.store.references("evaluations", NAME)
    if erased:
        erase(gate.store, plan_erasure(gate.store, first), "request 17")
    for evaluation in () if erased else chain([first], rest):
        gate.store.objects.local_path(f"{evaluation}/manifest.json").unlink()
    result = compare(ArtifactStore.open(gate.store.address), ":1", ":2")
    assert result.numbers == () and result.same_test is erased
    assert ("configuration", "seed") in {(change.part, change.name) for change in result.changes}
