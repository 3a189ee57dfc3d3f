"""The split stage: what it publishes for every strategy, that readers find it, and what it refuses."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.splitting import training_set as module
from gatehouse.data.splitting.divide import PARTS
from gatehouse.data.splitting.stage import SplitRequest, split
from gatehouse.data.splitting.training_set import TrainingSet
from gatehouse.errors import LeakageError
from gatehouse.pieces.driving import driving
from gatehouse.runtime.variables import ENGINE
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
    rows_of: dict[str, list[int]] = {}
    for reference, names in ((result.split, split_files), *([(result.folds, fold_files)] if count else [])):
        manifest = store.manifest(reference)
        assert {entry.path for entry in manifest.files} == set(names)
        assert manifest.columns == (Column("row", "int64", False),)
        assert manifest.derived_from == {"training_set": training_set}
        for name in names:
            rows_of[name] = _rows(store, reference, name)
            assert rows_of[name] == sorted(set(rows_of[name])), name
            assert manifest.entry(name).rows == len(rows_of[name])  # type: ignore[union-attr]  # it was listed above
    assert bool(result.folds) == bool(count)
    assert {name: len(rows_of[f"{name}.parquet"]) for name in PARTS}.items() <= result.rows.items()
    assert sum(result.rows.values()) == COUNT
    if count:
        assert [rows_of[name] for name in split_files[:2]] == [rows_of[name] for name in fold_files[-2:]]
    published = store.read_json(result.split_checks, "checks.json")
    assert {check["name"]: check["status"] for check in published["checks"]} == result.checks
    assert len(published["folds"]) == count
    assert store.manifest(result.split_checks).derived_from == {"split": result.split, "training_set": training_set}


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
    for left, right in ((first.split, other.split), *([(first.folds, other.folds)] if first.folds else [])):
        assert store.manifest(left).files == store.manifest(right).files


def test_workers_hash_the_rows_of_a_split(
    store: ArtifactStore, training_set: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES["k_fold"]))
    whole = split(request, store)
    monkeypatch.setattr(module, "ROWS", 700)
    monkeypatch.setenv(ENGINE, '{"workers": 2}')
    with driving():
        assert split(request, store, force="again") == whole
    hashed = len(list(store.objects.list("memo/hash_rows")))
    assert hashed and hashed % 3 == 0, "each hash of the rows has a piece for each file"
    for columns, start in ((["town"], 2**64 - 1), ([], 3), (["key", "colour"], 0)):
        hashes = []
        for rows in (700, COUNT):
            monkeypatch.setattr(module, "ROWS", rows)
            hashes.append(TrainingSet.open(store, training_set).hashes(columns, start))
        assert all(np.array_equal(*pair) for pair in zip(*hashes, strict=True))


def test_a_decision_that_is_there_twice_is_refused(store: ArtifactStore, publish: Publish) -> None:
    times = pa.array(np.full(200, np.datetime64("2024-01-01", "us")))
    table = pa.table({"key": [1] * 200, "decision_time": times, "label": [0] * 200, "label_time": times})
    with pytest.raises(LeakageError, match="199 rows repeat the entity keys key and decision time of another"):
        split(SplitRequest(training_set=publish(table), spec=spec_of(**STRATEGIES["time"])), store)


def _labels_of(count: int, rows: Collection[int]) -> pa.Array:
    return pa.array([1.5 + row % 7 if row in rows else None for row in range(count)], pa.float64())


@pytest.mark.parametrize(
    ("present", "warnings"),
    [
        (range(1000, COUNT), ["size: no row of train has a value"]),
        (range(1500), ["size: no row of test has a value, but most of train do"]),
        (range(900, 1500), []),
        ([row for row in range(COUNT) if row % 4 in (1, 2)], []),
    ],
)
def test_a_feature_without_any_value_in_a_part_is_a_warning(
    store: ArtifactStore,
    publish: Publish,
    present: Collection[int],
    warnings: list[str],
) -> None:
    table = _table().set_column(7, "size", _labels_of(COUNT, present))
    table = table.set_column(8, "colour", pa.array(["red"] * COUNT))
    training_set = publish(table, numeric=["size"], categorical=["colour"])
    result = split(SplitRequest(training_set=training_set, spec=spec_of(**STRATEGIES["time"])), store).warnings
    lacking = [warning for warning in result if "has a value" in warning]
    assert len(lacking) == len(warnings) and all(map(str.startswith, lacking, warnings))
