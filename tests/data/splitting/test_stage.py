"""The split stage: what it publishes for every strategy, that readers find it, and what it refuses."""

import json
import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from gatehouse.data.splitting.divide import divide
from gatehouse.data.splitting.partition import PARTS
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.errors import ConfigurationError, LeakageError
from gatehouse.store.manifest import Column
from gatehouse.store.store import ArtifactStore
from tests.data.splitting.conftest import Publish, spec_of

START = datetime(2024, 1, 1, tzinfo=UTC)
COUNT = 2000
BOUNDS = {"train_until": START + timedelta(hours=1000), "validation_until": START + timedelta(hours=1500)}
STRATEGIES: dict[str, dict[str, Any]] = {
    "time": BOUNDS | {"gap": timedelta(hours=5)},
    "random": {"strategy": "random"},
    "stratified": {"strategy": "stratified", "strata": ["label", "town"]},
    "entity": {"strategy": "entity"},
    "group": {"strategy": "group", "columns": ["town"]},
    "geographic": {"strategy": "geographic", "cell_km": 100, "buffer_km": 5},
    "k_fold": {"strategy": "k_fold", "folds": 3, "test_fraction": 0.2, "unit": "group", "columns": ["town"]},
    "rolling_origin": {
        "strategy": "rolling_origin",
        "origins": 3,
        "horizon": "P10D",
        "test_from": BOUNDS["train_until"],
    },
}


def _table(count: int = COUNT) -> pa.Table:
    generator = np.random.default_rng(3)
    decision = np.datetime64(START.replace(tzinfo=None), "us") + np.arange(count) * np.timedelta64(1, "h")
    return pa.table(
        {
            "key": pa.array([f"№ {row}" for row in range(count)]),
            "decision_time": pa.array(decision, pa.timestamp("us", tz="UTC")),
            "label": pa.array(np.arange(count) % 2, pa.int8()),
            "label_time": pa.array(decision + np.timedelta64(3, "h"), pa.timestamp("us", tz="UTC")),
            "town": pa.array([f"town {number}" for number in generator.integers(0, 90, count)]),
            "latitude": generator.uniform(45, 55, count),
            "longitude": generator.uniform(0, 15, count),
            "size": generator.normal(size=count),
            "colour": pa.array(["red", None] * (count // 2), pa.string()),
        }
    )


def _rows(store: ArtifactStore, reference: str, file: str) -> list[int]:
    return pq.read_table(store.path(reference, file))["row"].to_pylist()  # type: ignore[no-any-return]


@pytest.fixture
def training_set(publish: Publish) -> str:
    """Two thousand rows in files of seven hundred."""
    return publish(_table(), numeric=["size"], categorical=["colour"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_writes_parts_folds_and_checks(store: ArtifactStore, training_set: str, strategy: str) -> None:
    result = split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES[strategy])), store)
    split_files = [f"{name}.parquet" for name in PARTS]
    count = 3 if strategy in ("k_fold", "rolling_origin") else 0
    fold_files = [f"{number}/{name}.parquet" for number in range(count) for name in ("train", "validation")]
    held: dict[str, list[int]] = {}
    for reference, names in ((result.split, split_files), *([(result.folds, fold_files)] if count else [])):
        manifest = store.manifest(reference)
        assert {entry.path for entry in manifest.files} == set(names)
        assert manifest.columns == (Column("row", "int64", False),)
        assert manifest.derived_from == {"training_set": training_set}
        for name in names:
            held[name] = _rows(store, reference, name)
            assert held[name] == sorted(set(held[name])), name
            assert manifest.entry(name).rows == len(held[name])  # type: ignore[union-attr]  # it was listed above
    assert bool(result.folds) == bool(count)
    assert {name: len(held[f"{name}.parquet"]) for name in PARTS}.items() <= result.rows.items()
    assert sum(result.rows.values()) == COUNT
    if count:
        assert [held[name] for name in split_files[:2]] == [held[name] for name in fold_files[-2:]]
    found = store.read_json(result.split_checks, "checks.json")
    assert {one["name"]: one["status"] for one in found["checks"]} == result.checks
    assert len(found["folds"]) == count
    assert store.manifest(result.split_checks).derived_from == {"split": result.split, "training_set": training_set}


def test_what_is_checked_changes_no_part(store: ArtifactStore, training_set: str) -> None:
    specs = [spec_of(strategy="random", checks={"psi": psi}) for psi in (0.1, 0.2)]
    results = [split(SplitRequest(training_set=training_set, spec=spec), store) for spec in specs]
    assert results[0].split == results[1].split
    assert results[0].split_checks != results[1].split_checks


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_rows_give_the_same_bytes_in_any_store_and_any_files(
    store: ArtifactStore, tmp_path: Any, training_set: str, publish: Publish, strategy: str
) -> None:
    spec = spec_of(**STRATEGIES[strategy])
    first = split(SplitRequest(training_set=training_set, spec=spec), store)
    again = split(SplitRequest(training_set=training_set, spec=spec), store, force="again")
    assert again == first
    otherwise_cut = publish(_table(), rows_a_file=1999, numeric=["size"], categorical=["colour"])
    other = split(SplitRequest(training_set=otherwise_cut, spec=spec), store)
    for mine, same in ((first.split, other.split), *([(first.folds, other.folds)] if first.folds else [])):
        assert store.manifest(mine).files == store.manifest(same).files


def test_the_artifact_of_a_split_by_time_lists_rows_and_counts_the_gap(store: ArtifactStore, training_set: str) -> None:
    result = split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES["time"])), store)
    assert result.rows == {"train": 996, "validation": 496, "test": 500, "gap": 8}
    assert _rows(store, result.split, "train.parquet") == list(range(996))
    assert _rows(store, result.split, "validation.parquet") == list(range(1000, 1496))
    parts = store.read_json(result.split_checks, "checks.json")["parts"]
    assert {part["level"] for part in parts.values()} == {0.5}
    assert parts["train"]["last"] == "2024-02-11 11:00"


def test_the_memo_is_met_with_the_specification_that_a_parameter_carries(
    store: ArtifactStore, training_set: str
) -> None:
    spec = spec_of(strategy="random")
    first = split(SplitRequest(training_set=training_set, spec=spec), store)
    request = SplitRequest.model_validate_json(SplitRequest(training_set=training_set, spec=spec).model_dump_json())
    assert split(request, store) == first
    runs = [json.loads(store.objects.get_bytes(key)) for key in store.objects.list("provenance")]
    assert len(runs) == 2  # one for each artifact of one run


def test_all_that_a_split_must_not_be_is_told_at_once(store: ArtifactStore, publish: Publish) -> None:
    table = _table()
    late = table["label_time"].to_numpy() + np.timedelta64(9, "h")
    known = pa.array(table["decision_time"].to_numpy() + np.timedelta64(1, "us"), pa.timestamp("us"))
    table = table.set_column(3, "label_time", pa.array(late, pa.timestamp("us", tz="UTC")))
    table = table.append_column("known", known)
    training_set = publish(table, numeric=["size"], availability={"size": "known"})
    spec = spec_of(**BOUNDS, test_until=BOUNDS["validation_until"] + timedelta(minutes=1), checks={"groups": ["town"]})
    with pytest.raises(LeakageError) as refused:
        split(SplitRequest(training_set=training_set, spec=spec), store)
    message = str(refused.value)
    assert "is not divided, for 5 reasons:" in message
    assert "parts: test: has 1 row with label 0 and 0 with label 1" in message
    assert re.search(r"group_overlap: (\d+) of the \1 values of town in validation are in train too", message)
    assert "availability: size of 1455 rows was known only after the decision, up to 1e-06 s later" in message
    assert "`split.checks.severity`" in message
    assert list(store.references("splits")) == []


def test_rows_without_times_are_refused_with_their_number(store: ArtifactStore, publish: Publish) -> None:
    table = _table()
    times = table["decision_time"].to_numpy().copy()
    times[[3, 1500]] = "NaT"
    table = table.set_column(1, "decision_time", pa.array(times, pa.timestamp("us", tz="UTC")))
    with pytest.raises(LeakageError, match="2 rows without decision_time: nobody can tell on which side they are"):
        split(SplitRequest(training_set=publish(table), spec=spec_of(**STRATEGIES["time"])), store)


def test_a_decision_that_is_there_twice_is_refused(store: ArtifactStore, publish: Publish) -> None:
    times = pa.array(np.full(200, np.datetime64("2024-01-01", "us")))
    table = pa.table({"key": [1] * 200, "decision_time": times, "label": [0] * 200, "label_time": times})
    with pytest.raises(LeakageError, match="199 rows repeat the entity keys key and decision time of another"):
        split(SplitRequest(training_set=publish(table), spec=spec_of(**STRATEGIES["time"])), store)


@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_no_row_or_one_is_no_split(store: ArtifactStore, publish: Publish, strategy: str, count: int) -> None:
    training_set = publish(_table().slice(0, count), numeric=["size"], categorical=["colour"])
    with pytest.raises(ConfigurationError, match="has no rows"):
        split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES[strategy])), store)


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        (
            {"train_until": timedelta(days=810), "validation_until": timedelta(days=405)},
            r"(?s)train: has no rows. It spans decisions before 2022-\S+ \(train_until, P810D before the newest\); the "
            r"decisions are from 2024-01-01T00:00:00 to 2024-.* validation: has no rows. It spans decisions from 2022-"
            r"\S+ \(train_until, P810D .* such as train_until: P24D and validation_until: P12D. Move",
        ),
        (
            BOUNDS | {"validation_until": datetime(2034, 1, 1)},
            r"test: has no rows. It spans decisions from 2034-01-01T",
        ),
        (BOUNDS | {"gap": timedelta(days=400)}, r"Of the 1,000 in this span, none is P400D \(gap\) before its end"),
        (
            {"strategy": "rolling_origin", "horizon": timedelta(days=1), "test_from": datetime(2034, 1, 1)},
            r"(?s)validation: has no rows. It spans decisions from 2033-12-31T00:00:00 before 2034-01-01T00:00:"
            r"00; .* Set test_from, horizon, step and origins",
        ),
    ],
)
def test_an_empty_part_is_told_with_its_span_and_that_of_the_rows(
    store: ArtifactStore, training_set: str, bounds: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        split(SplitRequest(training_set=training_set, spec=spec_of(**bounds)), store)


def test_times_that_are_none_are_refused(store: ArtifactStore, publish: Publish) -> None:
    table = _table().set_column(1, "decision_time", pa.array(["yesterday"] * COUNT))
    with pytest.raises(ConfigurationError, match="column decision_time is string: expected a timestamp"):
        split(SplitRequest(training_set=publish(table), spec=spec_of(**STRATEGIES["time"])), store)


def test_times_without_a_zone_and_in_another_unit_are_the_same_moments(store: ArtifactStore, publish: Publish) -> None:
    table = _table()
    plain = table
    for place, name in ((1, "decision_time"), (3, "label_time")):
        plain = plain.set_column(place, name, table[name].cast(pa.timestamp("us")).cast(pa.timestamp("ns")))
    spec = spec_of(**STRATEGIES["random"])
    found = [split(SplitRequest(training_set=publish(each), spec=spec), store).split for each in (table, plain)]
    assert _rows(store, found[0], "train.parquet") == _rows(store, found[1], "train.parquet")


def test_features_of_types_that_cannot_be_compared_are_refused(store: ArtifactStore, publish: Publish) -> None:
    training_set = publish(_table().append_column("path", pa.array([[1]] * COUNT)), categorical=["path", "colour"])
    with pytest.raises(ConfigurationError, match=r"divided or compared by path \(list<.*int64>\)"):
        split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES["random"])), store)


def _few(towns: int) -> pa.Table:
    table = _table(200)
    return table.set_column(4, "town", pa.array([f"town {row % towns}" for row in range(200)]))


@pytest.mark.parametrize(
    ("rows", "keys", "told", "advised"),
    [
        (
            200,
            {"strategy": "group", "columns": ["town"]},
            r"What is divided: 200 rows with 4 distinct values of town, each of which stays in one part; none came "
            r"here by fractions.\w+: 0.15. Set ",
            r"seed: \d+",
        ),
        (
            200,
            {"strategy": "random", "fractions": {"train": 0.9989, "validation": 0.001, "test": 0.0001}},
            r"200 distinct values of key with decision_time, .* by fractions.test: 0.0001. Set ",
            r"fractions: \{train: 0.7, validation: 0.15, test: 0.15\}",
        ),
        (
            200,
            {"strategy": "k_fold", "unit": "group", "columns": ["town"], "folds": 9, "test_fraction": 0.2},
            r"4 distinct values of town, .* none came here of folds: 9 and test_fraction: 0.2. Set ",
            r"folds: \d and seed: \d+",
        ),
        (
            200,
            {"strategy": "k_fold", "folds": 3, "test_from": "2034-01-01"},
            r"test: has no rows. test_from: 2034-01-01T00:00:00\+00:00 is the beginning; the decisions are from "
            r"2024-01-01T00:00:00 to 2024-01-09T07:00:00. Set a time between these, such as ",
            r"test_from: 2024-01-08T01:09:00",
        ),
        (
            200,
            {"strategy": "k_fold", "folds": 3, "test_from": "2024-01-01"},
            r"train: has no rows. test_from: 2024-01-01T00:00:00\+00:00 with its gap of P1D has 0 rows with 0 distinct "
            r"values of key with decision_time before it for folds: 3; the .* Set a time between these, such as ",
            r"test_from: 2024-01-08T01:09:00",
        ),
        (
            200,
            {"strategy": "k_fold", "test_from": "2024-01-02T01:00:00Z"},
            r"gap of P1D has 2 rows with 2 distinct values of key .* before it for folds: 5; .* such as ",
            r"test_from: 2024-01-08T01:09:00",
        ),
        (
            200,
            {"strategy": "k_fold", "test_from": "2024-01-02T04:00:00Z"},
            r"What is divided: 5 rows with 5 distinct values of key .* none came here of folds: 5. Set ",
            r"folds: \d and seed: \d+",
        ),
        (
            1,
            {"strategy": "random"},
            r"1 row with 1 distinct value of key with decision_time, .*. Bring more rows\n",
            "",
        ),
        (2, {"strategy": "stratified"}, r"2 rows with 2 distinct values of key .*. Bring more rows\n", ""),
        (
            3,
            {"strategy": "k_fold", "folds": 3, "test_fraction": 0.01, "unit": "stratified"},
            r"test: has no rows.*3 rows with 3 distinct values of key .* Bring rows with more values of key with "
            r"decision_time\n",
            "",
        ),
        (
            200,
            {"strategy": "geographic", "cell_km": 5000},
            "200 rows with 1 distinct cell of 5000 km, .* Set a smaller cell_km",
            "",
        ),
        (
            200,
            {"strategy": "stratified", "strata": ["key"]},
            r"none came here by fractions.\w+: 0.15. Name strata that have more rows each",
            "",
        ),
    ],
)
def test_an_empty_part_of_a_split_by_hash_is_told_with_what_was_divided_and_what_to_set(
    store: ArtifactStore, publish: Publish, rows: int, keys: dict[str, Any], told: str, advised: str
) -> None:
    training_set = publish(_few(4).slice(0, rows))
    line = f"({advised}), (with which every part has rows|and a gap that fits)" if advised else ""
    with pytest.raises(ConfigurationError) as caught:
        split(SplitRequest(training_set=training_set, spec=spec_of(**keys)), store)
    found = re.search(f"(?s){told}{line}", str(caught.value))
    assert found, str(caught.value)
    if advised:
        changed = keys | yaml.safe_load("\n".join(found[1].split(" and ")))
        partition = divide(spec_of(**changed), TrainingSet.open(store, training_set)).partition
        scopes = [partition.parts, *(fold for _, fold in partition.every_fold())]
        assert all(len(part) for parts in scopes for part in parts.values())


def _known(count: int, rows: Collection[int]) -> pa.Array:
    return pa.array([1.5 + row % 7 if row in rows else None for row in range(count)], pa.float64())


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (range(0), ["size: none of 996 rows of train has a value, so a model learns nothing of it. "]),
        (range(1000, COUNT), ["size: none of 996 rows of train has a value"]),
        (
            range(1500),
            ["size: none of 500 rows of test has a value, but 996 of 996 of train do: test measures "],
        ),
        (range(900, 1500), []),
        (range(COUNT), []),
        ([row for row in range(COUNT) if row % 4 in (1, 2)], []),
    ],
)
@pytest.mark.parametrize("sample", [COUNT, COUNT // 8])
def test_a_feature_without_any_value_in_a_part_is_a_warning(
    store: ArtifactStore,
    publish: Publish,
    monkeypatch: pytest.MonkeyPatch,
    known: Collection[int],
    told: list[str],
    sample: int,
) -> None:
    monkeypatch.setattr("gatehouse.data.splitting.profile._ROWS", sample)
    table = _table().set_column(7, "size", _known(COUNT, known))
    table = table.set_column(8, "colour", pa.array(["red"] * COUNT))
    training_set = publish(table, numeric=["size"], categorical=["colour"])
    found = split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES["time"])), store).warnings
    lacking = [each for each in found if "none of" in each]
    assert len(lacking) == len(told) and all(map(str.startswith, lacking, told))
