"""Comparison of tables: rows, columns and statistics against a brute-force count."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatehouse.data.validation.sensitivity import sensitive_columns
from gatehouse.errors import ConfigurationError
from gatehouse.store.comparison import TableChange, compare
from gatehouse.store.manifest import Column
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore


def _table(store: ArtifactStore, columns: dict[str, Any], name: str = "t", **types: pa.DataType) -> Reference:
    table = pa.table({each: pa.array(values, types.get(each)) for each, values in columns.items()})
    with store.workspace() as workspace:
        pq.write_table(table, workspace / "part.parquet")
        return store.publish(
            "datasets",
            name,
            {"part.parquet": workspace / "part.parquet"},
            columns=[Column(field.name, str(field.type)) for field in table.schema],
            rows=table.num_rows,
        )


def _compare(store: ArtifactStore, before: Reference, after: Reference, key: Sequence[str] = ()) -> list[TableChange]:
    return compare(store, before, after, partial(sensitive_columns, store), key)


def _one(store: ArtifactStore, before: Reference, after: Reference, *key: str) -> TableChange:
    (change,) = _compare(store, before, after, key)
    return change


def test_columns_rows_and_statistics(store: ArtifactStore) -> None:
    before = _table(store, {"id": [1, 2, 3], "x": [1.0, 2.0, 3.0], "old": ["a", "b", "c"], "n": [1, 2, 3]})
    after = _table(store, {"id": [2, 3, 4], "x": [2.0, None, 4.0], "n": ["1", "2", "3"], "new": [True, False, None]})
    change = _one(store, before, after)
    assert {column.name: column.state for column in change.columns} == {
        "id": "changed",
        "x": "changed",
        "n": "retyped",
        "new": "added",
        "old": "removed",
    }
    assert (change.rows, change.common, change.added, change.removed) == ((3, 3), 1, 2, 2)
    x = next(column for column in change.columns if column.name == "x")
    assert x.statistics == {
        "nulls": (0, 1),
        "distinct": (3, 2),
        "min": (1.0, 2.0),
        "max": (3.0, 4.0),
        "mean": (2.0, 3.0),
    }


def test_with_a_key_a_changed_row_is_neither_added_nor_removed(store: ArtifactStore) -> None:
    before = _table(store, {"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    after = _table(store, {"id": [2, 3, 4], "x": [2.0, None, 4.0]})
    change = _one(store, before, after, "id")
    assert (change.common, change.added, change.removed, change.changed) == (1, 1, 1, 1)


def test_a_key_that_repeats_is_refused_with_both_counts(store: ArtifactStore) -> None:
    before = _table(store, {"id": [1, 1, 3]})
    after = _table(store, {"id": [2, 3, 4]})
    with pytest.raises(ConfigurationError, match=r"\(id\) does not identify the rows of t before.* 3 .*found 2"):
        _compare(store, before, after, ["id"])
    with pytest.raises(ConfigurationError, match="no table has the columns nothing"):
        _compare(store, before, after, ["nothing"])


def test_odd_names_and_types_are_compared(store: ArtifactStore) -> None:
    columns: dict[str, Any] = {'a "b"': [1], "b": [[1, 2]], "b ": [{"x": 1}], "h's": [float("nan")]}
    before = _table(store, columns)
    after = _table(store, columns | {"b": [[1, 3]]})
    assert (_one(store, before, after).common, _one(store, before, after).added) == (0, 1)
    again = _table(store, columns, name="u")
    assert _one(store, before, again).same


def test_snapshots_are_compared_table_by_table(store: ArtifactStore) -> None:
    same = _table(store, {"id": [1]}, "same")
    first, second = _table(store, {"id": [1, 2]}, "grown"), _table(store, {"id": [1, 2, 3]}, "grown")
    gone, new = _table(store, {"id": [1, 2]}, "gone"), _table(store, {"id": [5]}, "new")
    before = store.publish("snapshots", "s", {}, derived_from={"same": same, "grown": first, "gone": gone})
    after = store.publish("snapshots", "s", {}, derived_from={"same": same, "grown": second, "new": new})
    changes = {change.table: (change.common, change.added, change.removed) for change in _compare(store, before, after)}
    assert changes == {"same": (1, 0, 0), "grown": (2, 1, 0), "gone": (0, 0, 2), "new": (0, 1, 0)}
    with pytest.raises(ConfigurationError, match="found one of each"):
        _compare(store, before, same)
    with pytest.raises(ConfigurationError, match="it has none"):
        _compare(store, store.publish("config", "c", {"a": b"1"}), before)


def _named(store: ArtifactStore, names: list[str], **more: Any) -> Reference:
    with store.workspace() as workspace:
        pq.write_table(pa.table({"id": list(range(len(names))), "name": names}), workspace / "p.parquet")
        columns = [Column("id", "int64"), Column("name", "string")]
        return store.publish("datasets", "t", {"p.parquet": workspace / "p.parquet"}, columns=columns, rows=2, **more)


def test_values_of_sensitive_columns_are_not_shown_nor_of_what_was_derived_from_them(store: ArtifactStore) -> None:
    before = _named(store, ["alice", "carol"], details={"sensitive": ["name"]})
    after = _named(store, ["bob", "dave"], details={"sensitive": ["name"]})
    derived = [_named(store, names, derived_from={"t": before}) for names in (["alice", "x"], ["bob", "y"])]
    for first, second in ((before, after), (derived[0], derived[1])):
        change = _one(store, first, second)
        name = next(column for column in change.columns if column.name == "name")
        assert name.state == "changed" and name.statistics == {"min": ("***", "***"), "max": ("***", "***")}
        assert "alice" not in repr(change) and "bob" not in repr(change)


def _split(store: ArtifactStore, train: list[int], test: list[int]) -> Reference:
    with store.workspace() as workspace:
        for name, rows in (("train", train), ("test", test)):
            pq.write_table(pa.table({"row": rows}), workspace / f"{name}.parquet")
        files = {f"{name}.parquet": workspace / f"{name}.parquet" for name in ("train", "test")}
        counts = {"train.parquet": len(train), "test.parquet": len(test)}
        columns = [Column("row", "int64", False)]
        return store.publish("splits", "s", files, columns=columns, rows=4, rows_per_file=counts)


def test_two_splits_are_compared_part_by_part(store: ArtifactStore) -> None:
    before, after = _split(store, [1, 2, 3], [4]), _split(store, [1, 2], [3, 4])
    changes = {each.table: (each.rows, each.added, each.removed) for each in _compare(store, before, after)}
    assert changes == {"train.parquet": ((3, 2), 0, 1), "test.parquet": ((1, 2), 1, 0)}
    assert all(each.same for each in _compare(store, before, before))


_ROWS = st.lists(st.tuples(st.integers(0, 3) | st.none(), st.sampled_from(["a", "b", None])), min_size=1, max_size=12)
_PAIRS = st.lists(st.tuples(_ROWS, _ROWS), min_size=8, max_size=8)


@given(_PAIRS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_rows_are_counted_as_multisets(store: ArtifactStore, pairs: list[tuple[list[Any], list[Any]]]) -> None:
    def tables(side: int) -> Reference:
        schema = pa.schema([("k", pa.int64()), ("s", pa.string())])
        with store.workspace() as workspace:
            files = {f"{number}.parquet": workspace / f"{number}.parquet" for number in range(len(pairs))}
            for path, pair in zip(files.values(), pairs, strict=True):
                pq.write_table(
                    pa.table([list(column) for column in zip(*pair[side], strict=True)], schema=schema), path
                )
            columns = [Column("k", "int64"), Column("s", "string")]
            counts = {path: len(pair[side]) for path, pair in zip(files, pairs, strict=True)}
            return store.publish("folds", "f", files, columns=columns, rows_per_file=counts)

    changes = {change.table: change for change in _compare(store, tables(0), tables(1))}
    for number, (first, second) in enumerate(pairs):
        change, common = changes[f"{number}.parquet"], sum((Counter(first) & Counter(second)).values())
        assert (change.common, change.added, change.removed) == (common, len(second) - common, len(first) - common)


def test_nothing_is_left_beside_the_store(store: ArtifactStore) -> None:
    before, after = _table(store, {"id": [1]}), _table(store, {"id": [2]})
    _compare(store, before, after)
    assert not list((Path(store.address) / "tmp").glob("work-*"))
