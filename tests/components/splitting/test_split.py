"""Splitting by time: agrees with a row-by-row reference, and refuses what is not in order of time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.components.artifacts.store import ArtifactStore
from gatehouse.components.splitting.spec import SplitSpec
from gatehouse.components.splitting.stage import SplitRequest, split
from gatehouse.components.splitting.time_order import PARTS, check_time_order, divide
from gatehouse.errors import LeakageError

START = datetime(2024, 1, 1, tzinfo=UTC)


def _hours(values: Any) -> Any:
    start = np.datetime64(START.replace(tzinfo=None), "us")
    return start + np.asarray(values, dtype=np.int64) * np.timedelta64(1, "h")


def _at(hours: int) -> datetime:
    return START + timedelta(hours=hours)


def _spec(**changes: Any) -> SplitSpec:
    wanted = {"train_until": _at(100), "validation_until": _at(150), "gap": timedelta(hours=5)}
    return SplitSpec.model_validate(wanted | changes)


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15)), max_size=60),
    bounds=st.lists(st.integers(1, 59), min_size=4, max_size=4, unique=True).map(sorted),
    gap=st.integers(0, 12),
    open_start=st.booleans(),
    open_end=st.booleans(),
)
def test_divide_agrees_with_a_row_by_row_reference(
    rows: list[tuple[int, int]], bounds: list[int], gap: int, open_start: bool, open_end: bool
) -> None:
    spec = SplitSpec(
        train_from=None if open_start else _at(bounds[0]),
        train_until=_at(bounds[1]),
        validation_until=_at(bounds[2]),
        test_until=None if open_end else _at(bounds[3]),
        gap=timedelta(hours=gap),
    )
    expected: dict[str, list[int]] = {name: [] for name in PARTS}
    for row, (decided, delay) in enumerate(rows):
        if (open_start or decided >= bounds[0]) and decided <= bounds[1] - gap and decided < bounds[1]:
            if decided + delay <= bounds[1]:
                expected["train"].append(row)
        elif bounds[1] <= decided < bounds[2] and decided <= bounds[2] - gap:
            if decided + delay <= bounds[2]:
                expected["validation"].append(row)
        elif bounds[2] <= decided and (open_end or decided < bounds[3]):
            expected["test"].append(row)
    decision = _hours([decided for decided, _ in rows])
    label = _hours([decided + delay for decided, delay in rows])
    found = divide(decision, label, spec)
    assert {name: part.tolist() for name, part in found.items()} == expected


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 15), st.integers(0, 1)), min_size=3, max_size=40),
    part_of=st.lists(st.integers(0, 3), min_size=40, max_size=40),
)
def test_only_splits_in_order_of_time_are_accepted(rows: list[tuple[int, int, int]], part_of: list[int]) -> None:
    decided, delay, labels = (np.array(column) for column in zip(*rows, strict=True))
    parts = {
        name: np.array([row for row in range(len(rows)) if part_of[row] == index], dtype=np.int64)
        for index, name in enumerate(PARTS)
    }
    known = decided + delay
    good = all(len(part) and set(labels[part]) == {0, 1} for part in parts.values())
    for earlier, later in (("train", "validation"), ("train", "test"), ("validation", "test")):
        for left in parts[earlier]:
            for right in parts[later]:
                good = good and bool(decided[left] < decided[right] and known[left] <= decided[right])
    try:
        check_time_order(_hours(decided), _hours(known), labels, parts)
        accepted = True
    except LeakageError:
        accepted = False
    assert accepted == good


def _ordered() -> tuple[Any, Any, Any, dict[str, Any]]:
    decision = _hours([0, 1, 20, 21, 40, 41])
    parts = {"train": np.array([0, 1]), "validation": np.array([2, 3]), "test": np.array([4, 5])}
    return decision, decision + np.timedelta64(2, "h"), np.array([0, 1] * 3), parts


def test_a_split_in_order_is_accepted() -> None:
    check_time_order(*_ordered())


def test_a_random_split_is_refused_with_counts_and_times() -> None:
    decision = _hours(range(1000))
    shuffled = np.random.default_rng(7).permutation(1000)
    parts = {"train": shuffled[:700], "validation": shuffled[700:850], "test": shuffled[850:]}
    with pytest.raises(
        LeakageError, match=r"\d{3} decisions of train .* are not before the first of validation \(2024"
    ):
        check_time_order(decision, decision, np.arange(1000) % 2, parts)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"label": (0, np.datetime64("NaT"))}, "train: 1 rows have no label time"),
        ({"decision": (2, np.datetime64("NaT"))}, "validation: 1 rows have no decision time"),
        ({"label": (4, _hours([0])[0])}, "test: 1 labels are said to be known before the decision"),
        ({"label": (1, _hours([30])[0])}, "1 labels of train were known only after the first decision of validation"),
        ({"labels": (0, 2)}, "train: 1 labels are neither 0 nor 1"),
        ({"labels": (5, 0)}, "test: every one of its 2 labels is 0"),
    ],
)
def test_what_cannot_be_judged_or_is_late_is_refused(change: dict[str, tuple[int, Any]], said: str) -> None:
    decision, label, labels, parts = _ordered()
    arrays = {"decision": decision, "label": label, "labels": labels}
    for name, (row, value) in change.items():
        arrays[name][row] = value
    with pytest.raises(LeakageError, match=said):
        check_time_order(decision, label, labels, parts)


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ([], "test: has no rows"),
        ([4, 5, 6], "test: 1 row numbers are not among the 6 rows"),
        ([4, -1], "test: 1 row numbers are not among the 6 rows"),
        ([3, 4, 5], "1 rows are in two parts"),
    ],
)
def test_parts_that_are_no_parts_are_refused(test: list[int], said: str) -> None:
    decision, label, labels, parts = _ordered()
    with pytest.raises(LeakageError, match=said):
        check_time_order(decision, label, labels, parts | {"test": np.array(test, dtype=np.int64)})


def test_boundaries_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="train_until < validation_until"):
        _spec(validation_until=_at(100))


def _training_set(store: ArtifactStore) -> str:
    hours = np.arange(200)
    table = pa.table(
        {
            "key": list(range(200)),
            "decision_time": pa.array(_hours(hours), pa.timestamp("us", tz="UTC")),
            "label": pa.array(hours % 2, pa.int8()),
            "label_time": pa.array(_hours(hours + 3), pa.timestamp("us", tz="UTC")),
        }
    )
    with store.workspace() as workspace:
        pq.write_table(table, workspace / "part.parquet")
        return str(
            store.publish(
                "training-sets",
                "service",
                {"part-00000.parquet": workspace / "part.parquet"},
                rows=200,
                details={"label": "label", "entity_keys": ["key"]},
            )
        )


def test_the_artifact_lists_rows_and_counts_the_gap(store: ArtifactStore) -> None:
    result = split(SplitRequest(training_set=_training_set(store), spec=_spec()), store)
    assert result.rows == {"train": 96, "validation": 46, "test": 50, "gap": 8}
    rows = {name: pq.read_table(store.path(result.split, f"{name}.parquet"))["row"].to_pylist() for name in PARTS}
    assert rows["train"] == list(range(96))
    assert rows["validation"] == list(range(100, 146))
    manifest = store.manifest(result.split)
    assert manifest.details["label_rate"] == {"train": 0.5, "validation": 0.5, "test": 0.5}
    assert manifest.details["last"]["train"] == "2024-01-04T23:00:00.000000"


def test_a_decision_that_is_there_twice_is_refused(store: ArtifactStore) -> None:
    decision_times = _hours(np.zeros(200))
    table = pa.table(
        {"key": [1] * 200, "decision_time": decision_times, "label": [0] * 200, "label_time": decision_times}
    )
    with store.workspace() as workspace:
        pq.write_table(table, workspace / "part.parquet")
        details = {"label": "label", "entity_keys": ["key"]}
        files = {"part-00000.parquet": workspace / "part.parquet"}
        training_set = str(store.publish("training-sets", "twice", files, details=details))
    with pytest.raises(LeakageError, match="199 rows repeat the entity keys"):
        split(SplitRequest(training_set=training_set, spec=_spec()), store)
