"""Versions with their numbers and tags, and by lineage; and how two differ."""

import pytest
from mlflow.utils.validation import _validate_tag_name
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.notebook.store import Store
from gatehouse.registry.explanation import compare
from gatehouse.registry.ledger import Ledger
from gatehouse.registry.promotion import tag
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
