"""What Parquet files that nobody declared are told to be, type by type; and that a snapshot reads them as told."""

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot.sniffing import Sniffed, sniff, source_of
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.errors import DeclarationError
from gatehouse.store.store import ArtifactStore

DELIVERED = "2024-05-01 12:00:00"
LARGE = "some of its numbers are larger than int64 holds"
ROME = pa.timestamp("us", "Europe/Rome")


def _written(folder: Path, values: Any, kind: pa.DataType | None = None, name: str = "v") -> Path:
    cells = values if isinstance(values, pa.Array) else pa.array(values, kind)
    pq.write_table(pa.table({"id": pa.array(range(len(cells))), name: cells}), folder / "t.parquet")
    return folder / "t.parquet"


def _read(store: ArtifactStore, path: Path, found: Sniffed) -> tuple[SnapshotResult, list[Any]]:
    taken = snapshot(SnapshotRequest(source=parse_source(source_of(found, path, "t", DELIVERED))), store)
    [dataset] = store.manifest(taken.snapshot).derived_from.values()
    return taken, [row.get("v") for part in store.paths(dataset) for row in pq.read_table(part).to_pylist()]


@pytest.mark.parametrize(
    ("cells", "kind", "read", "said"),
    [
        (pa.array([2**63 - 1, None], pa.uint64()), "int64", [2**63 - 1, None], ""),
        (pa.array([7, 2**63], pa.uint64()), "string", ["7", str(2**63)], LARGE),
        (pa.array([2**32 - 1], pa.uint32()), "int64", [2**32 - 1], ""),
        (pa.array([255], pa.uint8()), "int64", [255], ""),
        (pa.array([np.float16(0.5)], pa.float16()), "double", [0.5], ""),
        (pa.array([Decimal("1.25")], pa.decimal128(15, 2)), "double", [1.25], ""),
        (pa.array([Decimal("1.25")], pa.decimal128(38, 2)), "double", [1.25], "decimals of up to 38 digits"),
        (pa.array([Decimal(2**53 + 1)], pa.decimal128(38, 0)), "int64", [2**53 + 1], ""),
        (pa.array([Decimal(2**70), None], pa.decimal128(38, 0)), "string", [str(2**70), None], LARGE),
        (pa.array([time(1, 2, 3)], pa.time32("ms")), "string", ["01:02:03.000"], "times of day, read as text"),
        (pa.array([timedelta(seconds=2)], pa.duration("ms")), "int64", [2000], "read as whole numbers of milliseconds"),
        (pa.array(["a"], pa.large_string()), "string", ["a"], ""),
        (pa.array(["a", "b"]).dictionary_encode(), "string", ["a", "b"], ""),
        (pa.array([None], pa.null()), "string", [None], ""),
        (pa.array([None], pa.int64()), "int64", [None], ""),
    ],
)
def test_a_type_is_read_as_it_is_told(
    tmp_path: Path, store: ArtifactStore, cells: pa.Array, kind: str, read: list[Any], said: str
) -> None:
    path = _written(tmp_path, cells)
    found = sniff(path)
    column = found.columns[1]
    assert (str(column.kind), column.missing) == (kind, read.count(None))
    told = column.why_text + column.note
    assert said in told and bool(said) == bool(told)
    taken, rows = _read(store, path, found)
    assert rows == read and not taken.rejected


@pytest.mark.parametrize(
    ("cells", "moment"),
    [
        (pa.array([date(2024, 1, 2)]), "2024-01-02T00:00:00+00:00"),
        (pa.array([1_704_153_600_000_000_000], pa.timestamp("ns")), "2024-01-02T00:00:00+00:00"),
        (pa.array([datetime(2024, 1, 2)], pa.timestamp("ms")), "2024-01-02T00:00:00+00:00"),
        (pa.array([1_704_153_600_000_000], ROME), "2024-01-02T00:00:00+00:00"),
    ],
)
def test_times_are_read_and_without_a_zone_are_told(
    tmp_path: Path, store: ArtifactStore, cells: pa.Array, moment: str
) -> None:
    path = _written(tmp_path, cells)
    found = sniff(path)
    assert (found.event_time, found.columns[1].naive) == ("v", getattr(cells.type, "tz", None) is None)
    assert [each.isoformat() for each in _read(store, path, found)[1]] == [moment]
    # Where another time is wanted, these are texts.
    [text] = _read(store, path, found.ordered_by(""))[1]
    assert text.startswith("2024-01-02") and text.endswith("Z") == (not found.columns[1].naive)


@pytest.mark.parametrize(("odd", "kind"), [(1, "timestamp"), (3, "string")])
def test_times_finer_than_a_microsecond_are_texts_where_they_are_many(
    tmp_path: Path, store: ArtifactStore, odd: int, kind: str
) -> None:
    path = _written(tmp_path, [n * 10**9 + (n < odd) for n in range(40)], pa.timestamp("ns"))
    found = sniff(path)
    assert (str(found.columns[1].kind), found.columns[1].too_fine) == (kind, kind == "string")
    taken, rows = _read(store, path, found)
    assert taken.rejected_rows == ({"t": 1} if kind == "timestamp" else {})
    assert kind == "timestamp" or rows[0] == "1970-01-01 00:00:00.000000001"


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (pa.array([[1]]), "lists, structs or maps"),
        (pa.array([{"a": 1}]), "lists, structs or maps"),
        (pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), "lists, structs or maps"),
        (pa.array([b"a"]), "the type binary"),
        (pa.array([b"abc"], pa.binary(3)), r"the type fixed_size_binary\[3\]"),
    ],
)
def test_what_a_snapshot_cannot_hold_is_left_out(
    tmp_path: Path, store: ArtifactStore, cells: pa.Array, said: str
) -> None:
    path = _written(tmp_path, cells)
    taken, rows = _read(store, path, sniff(path))
    assert rows == [None] and not taken.rejected and not taken.warnings
    pq.write_table(pa.table({"v": cells}), path)
    with pytest.raises(DeclarationError, match=rf"a column that a snapshot can hold, found none \(v: .*{said}"):
        source_of(sniff(path), path, "t", DELIVERED)


def test_whole_numbers_since_1970_are_times_as_in_a_csv(tmp_path: Path, store: ArtifactStore) -> None:
    path = _written(tmp_path, [1_700_000_000, None], name="created_at")
    found = sniff(path)
    assert (found.event_time, found.columns[1].form) == ("created_at", "seconds")
    assert _read(store, path, found)[0].as_of == "2023-11-14T22:13:20+00:00"
    column = sniff(_written(tmp_path, [1_700_000_000.5], name="created_at")).columns[1]
    assert (str(column.kind), column.epoch) == ("double", "seconds")


def test_columns_of_one_name_and_times_that_nothing_reads_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "t.parquet")
    with pytest.raises(DeclarationError, match="different names, found one name for columns 1, 2"):
        sniff(tmp_path / "t.parquet")
    with pytest.raises(DeclarationError, match="such as a time far beyond the year 9999"):
        sniff(_written(tmp_path, [10**17], pa.timestamp("ms")))
    found = sniff(_written(tmp_path, [4 * 10**17, 0], pa.timestamp("us")))
    assert (str(found.columns[1].kind), found.columns[1].misfits) == ("timestamp", 1)


def test_a_text_that_stands_for_a_missing_value_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, ["nil", "a"])
    with pytest.raises(DeclarationError, match=r"--nulls: expected a CSV, found t\.parquet: .* in place of 'nil'"):
        sniff(path, ["nil"])
