"""Versions found by numbers, settings, tags and lineage; and how two differ."""

import pytest
from typer.testing import CliRunner

from gatehouse.cli.models import app
from gatehouse.errors import ConfigurationError
from gatehouse.registry.comparison import CompareRequest, compare
from gatehouse.registry.explanation import numbers_of
from gatehouse.registry.promotion import tag
from gatehouse.registry.search import SearchRequest, search
from gatehouse.store.canonical import canonical_json
from gatehouse.store.eraser import erase, plan_erasure
from gatehouse.store.store import ArtifactStore
from tests.registry.gate import NAME, Gate, make_gate


@pytest.fixture
def two(gate: Gate) -> Gate:
    """Two champions after each other; the second was trained on another snapshot."""
    gate.run(gate.model(1))
    other = make_gate(gate.store, rows="1,3")
    other.run(other.model(2))
    return other


def _numbers(gate: Gate, **request: object) -> list[int]:
    return [each.version for each in search(SearchRequest.model_validate(request), gate.store)]


def test_versions_are_found_by_what_they_are(two: Gate) -> None:
    tag(two.store, NAME, 1, {"season": "winter"})
    for query, wanted in (
        ("", [1, 2]),
        ("roc_auc > 0.7 order by version desc", [2, 1]),
        ("roc_auc > 0.8", []),
        ("seed = 2", [2]),
        ("stage = 'champion'", [2]),
        ("tags.season = 'winter'", [1]),
        ("user = 'ada' limit 1", [1]),
    ):
        assert _numbers(two, query=query) == wanted, query
    tag(two.store, NAME, 1, {"season": ""})
    assert _numbers(two, query="tags.season is not null") == []
    with pytest.raises(ConfigurationError):
        _numbers(two, query="roc_auc >")
    with pytest.raises(ConfigurationError, match=r"'roc_acu', which none of 2 versions has .did you mean roc_auc"):
        _numbers(two, query="roc_acu > 0.6")


@pytest.mark.parametrize("name", ["", " ", "/a", "a/", "../a", ".", "x" * 251, "a\nb"])
def test_a_tag_that_mlflow_would_not_take_is_refused(two: Gate, name: str) -> None:
    from mlflow.utils.validation import _validate_tag_name

    with pytest.raises(ConfigurationError, match="expected names of 1 to 250 letters"):
        tag(two.store, NAME, 1, {name: "x"})
    for good in ("season: of. 3-a_b", "team/owner", "-x", ".hid"):
        _validate_tag_name(good)
        tag(two.store, NAME, 1, {good: "x"})


def test_all_models_that_were_trained_on_a_snapshot(two: Gate) -> None:
    (mine,) = (each for each in search(SearchRequest(query="version = 2"), two.store))
    snapshot = two.store.manifest(two.training_set).derived_from["snapshot"]
    assert _numbers(two, trained_on=[snapshot]) == [mine.version] == [2]
    assert _numbers(two, trained_on=["datasets/flights/"]) == [1, 2]
    assert _numbers(two, trained_on=[snapshot, "snapshots/other/"]) == []


def test_two_versions_differ_in_data_and_settings(two: Gate) -> None:
    found = compare(CompareRequest(first=":1", second="@champion"), two.store)
    changed = {(each.part, each.name) for each in found.changes}
    assert {("data", "datasets/flights"), ("data", "snapshots/raw"), ("features", "training-sets/delay")} <= changed
    assert ("configuration", "seed") in changed and not found.same_test
    assert {each.name: each.first and each.first.value for each in found.numbers} == {"roc_auc": 0.73, "log_loss": 0.49}
    assert compare(CompareRequest(first=":1", second=":1"), two.store).changes == ()


def test_code_is_compared_by_module(two: Gate) -> None:
    for number, digest in ((1, "a"), (2, "b")):
        model = search(SearchRequest(query=f"version = {number}"), two.store)[0].model
        (key,) = two.store.objects.list(f"provenance/{model}")
        two.store.objects.local_path(key).unlink()
        two.store.append(f"provenance/{model}", {"code": digest * 64})
        two.store.record(f"code/{digest * 64}.json", {"modules": {"m": digest, "n": "same"}})
    found = compare(CompareRequest(first=":1", second=":2"), two.store)
    changed = [(each.name, each.first, each.second) for each in found.changes if each.part == "code"]
    assert changed == [("modules.m", "a", "b")]


def test_numbers_have_the_intervals_that_the_evaluation_holds(gate: Gate) -> None:
    files = {
        "metrics.json": canonical_json({"candidate": {"roc_auc": 0.7, "brier": 0.2, "calibration_error": 0.0539}}),
        "uncertainty.json": canonical_json(
            {"intervals": {"candidate": {"roc_auc": [0.6, 0.8], "calibration_error": [0.0, 0.0083]}}}
        ),
    }
    evaluation = gate.store.publish("evaluations", NAME, files)
    second, plain, first = numbers_of(gate.store, str(evaluation))
    assert (first.name, first.low, first.high) == ("roc_auc", 0.6, 0.8)
    assert (second.name, second.low, second.high) == ("brier", None, None)
    assert (plain.name, plain.low) == ("calibration_error", None), "that interval is of the true error"
    metrics = {"metrics.json": canonical_json({"candidate": {"mae": 2.0, "rmse": 3.0, "r2": 0.1}})}
    told = gate.store.publish("evaluations", NAME, metrics, details={"task": "regression"})
    assert [each.name for each in numbers_of(gate.store, str(told))] == ["rmse", "mae", "r2"], "the objective first"


@pytest.mark.parametrize("erased", [True, False])
def test_versions_whose_evaluations_are_gone_are_compared_by_what_made_them(gate: Gate, erased: bool) -> None:
    for seed in (1, 2):
        gate.run(gate.model(seed))
    assert compare(CompareRequest(first=":1", second=":2"), gate.store).same_test
    first, *others = gate.store.references("evaluations", NAME)
    if erased:
        erase(gate.store, plan_erasure(gate.store, first), "request 17")
    for each in () if erased else (first, *others):
        gate.store.objects.local_path(f"{each}/manifest.json").unlink()
    found = compare(CompareRequest(first=":1", second=":2"), ArtifactStore.open(gate.store.address))
    assert found.numbers == () and found.same_test is erased
    assert ("configuration", "seed") in {(each.part, each.name) for each in found.changes}


def test_the_commands_show_it(two: Gate) -> None:
    def call(*words: str) -> str:
        result = CliRunner().invoke(app, [*words, "--store", two.store.address])
        assert result.exit_code == 0, result.output
        return str(result.output)

    assert "season=winter" in call("tag", ":1", "season=winter")
    assert f"{NAME}:1" in (text := call("search", "season = 'winter'")) and f"{NAME}:2" not in text
    assert "different test rows" in (text := call("compare", ":1", ":2")) and "datasets/flights" in text
    with pytest.raises(ConfigurationError, match="expected NAME=VALUE, found winter"):
        raise CliRunner().invoke(app, ["tag", ":1", "winter", "--store", two.store.address]).exception or AssertionError
