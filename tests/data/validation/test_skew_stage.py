"""Training-serving skew: what is served is compared with what was trained on, and silence is never a pass."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.validation.skew_report import described
from gatehouse.data.validation.skew_stage import SkewRequest, SkewResult, SkewSpec, skew
from gatehouse.errors import ConfigurationError
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore

ROWS = 4000
Compare = Callable[..., SkewResult]


def _columns(seed: int = 7, rows: int = ROWS) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        "distance": generator.normal(500, 100, rows),
        "hour": generator.integers(0, 24, rows),
        "carrier": pa.array(np.array(["AA", "BB", "CC"])[generator.integers(0, 3, rows)]),
        "wet": generator.random(rows) < 0.2,
    }


def _publish(store: ArtifactStore, kind: str, columns: dict[str, Any], details: dict[str, Any] | None = None) -> str:
    table = pa.table(columns)
    with store.workspace() as workspace:
        path = workspace / "part-00000.parquet"
        pq.write_table(table, path)
        fields = [Column(field.name, str(field.type)) for field in table.schema]
        files = {path.name: path}
        return str(
            store.publish(kind, "log", files, columns=fields, rows_per_file={path.name: len(table)}, details=details)
        )


@pytest.fixture
def compare(store: ArtifactStore) -> Compare:
    """Compares logged columns with a training set whose manifest names its features."""
    details = {"numeric": ["distance", "hour"], "categorical": ["carrier", "wet"], "label": "late"}
    training = _publish(store, "training-sets", _columns() | {"late": np.zeros(ROWS, bool)}, details)

    def run(columns: dict[str, Any], **spec: Any) -> SkewResult:
        serving = _publish(store, "datasets", columns)
        return skew(SkewRequest(training_set=training, serving=serving, spec=SkewSpec(**spec)), store)

    return run


def _rules(store: ArtifactStore, result: SkewResult) -> set[tuple[str, str, str]]:
    anomalies = store.read_json(result.skew, "anomalies.json")
    return {(anomaly["column"], anomaly["rule"], anomaly["severity"]) for anomaly in anomalies}


def test_rows_like_those_trained_on_pass_without_the_label(store: ArtifactStore, compare: Compare) -> None:
    result = compare(_columns(seed=8))
    assert (result.verdict, result.reasons, _rules(store, result)) == ("pass", (), set())
    body = store.read_json(result.skew, "skew.json")
    assert {feature["feature"] for feature in body["features"]} == {"distance", "hour", "carrier", "wet"}
    assert body["rows"] == {"training": ROWS, "serving": ROWS}
    assert described(result, store).startswith("pass: 4,000 logged rows against 4,000 trained")


def test_a_feature_in_another_unit_is_found_and_named_first(store: ArtifactStore, compare: Compare) -> None:
    columns = _columns(seed=8)
    result = compare(columns | {"distance": columns["distance"] * 1.609})
    assert result.verdict == "fail"
    assert result.reasons[0].startswith("serving.distance: js: expected a Jensen-Shannon divergence of at most 0.1")
    assert _rules(store, result) == {("distance", "psi", "fail"), ("distance", "js", "fail")}
    assert store.read_json(result.skew, "skew.json")["features"][0]["feature"] == "distance"


def test_missing_new_and_retyped_features_are_named(store: ArtifactStore, compare: Compare) -> None:
    columns = _columns(seed=8)
    del columns["hour"]
    result = compare(columns | {"carrier": np.zeros(ROWS), "request": ["x"] * ROWS})
    expected = {("hour", "missing", "fail"), ("carrier", "type", "fail"), ("request", "new", "warn")}
    assert _rules(store, result) == expected
    silent = compare(_columns(seed=8) | {"request": ["x"] * ROWS}, ignore=("request",))
    assert _rules(store, silent) == set()


def test_numbers_of_another_width_and_coded_texts_are_the_same_feature(compare: Compare) -> None:
    columns = _columns(seed=8)
    narrow = {
        "distance": columns["distance"].astype(np.float32),
        "hour": columns["hour"].astype(np.int8),
        "carrier": columns["carrier"].dictionary_encode(),
    }
    assert compare(columns | narrow).verdict == "pass"


def test_values_that_are_missing_more_often_are_found(store: ArtifactStore, compare: Compare) -> None:
    columns = _columns(seed=8)
    holes = np.arange(ROWS) % 10 == 0
    nulls = pa.array(columns["distance"], mask=holes)
    nan = np.where(holes, np.nan, columns["distance"])
    for distance in (nulls, nan):
        result = compare(columns | {"distance": distance}, psi=9, js=None)
        assert _rules(store, result) == {("distance", "nulls", "fail")}
        assert "found 10.00%" in result.reasons[0]
    assert compare(columns | {"distance": nulls}, psi=9, js=None, nulls=0.2).verdict == "pass"


def test_too_few_logged_rows_are_not_judged(store: ArtifactStore, compare: Compare) -> None:
    result = compare(_columns(rows=999))
    assert (result.verdict, _rules(store, result)) == ("unjudged", set())
    assert "expected at least 1,000 logged rows" in result.reasons[0]
    assert compare(_columns(rows=999), min_rows=999).verdict == "pass"


def test_a_sensitive_feature_is_named_as_not_compared_and_shows_no_value(
    store: ArtifactStore, compare: Compare
) -> None:
    result = compare(_columns(seed=8) | {"carrier": ["ZZTOP"] * ROWS}, sensitive=("carrier",))
    assert result.verdict == "pass"
    unjudged = store.read_json(result.skew, "skew.json")["not_judged"]
    assert unjudged == ["carrier: its values, as no histogram is kept of a sensitive column"]
    assert not [path for path in store.paths(result.skew) if "ZZTOP" in path.read_text()]


def test_what_is_no_table_is_told(store: ArtifactStore) -> None:
    training, model = _publish(store, "training-sets", _columns()), str(store.publish("models", "log", {"a.bin": b"a"}))
    for training_set, other in ((training, model), (model, training)):
        with pytest.raises(ConfigurationError, match=r"models/log/.*: expected a table, such as a training"):
            skew(SkewRequest(training_set=training_set, serving=other), store)
