"""Reading Iceberg tables, each a real one in a SQL catalog."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from gatehouse.data.sources.lakehouse import IcebergSource
from gatehouse.errors import SourceError
from tests.data.sources.reading import COLUMNS, read, rows


@pytest.fixture
def orders(tmp_path: Path) -> Table:
    """An empty Iceberg table."""
    catalog = SqlCatalog("made", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("shop")
    return catalog.create_table("shop.orders", schema=rows(0, 0).schema)


def source(place: Path, rows_per_part: int = 100, time_zone: str = "", **table: Any) -> IcebergSource:
    declared: dict[str, Any] = {"columns": COLUMNS} | table
    if "metadata" not in table:
        declared["identifier"] = declared.get("identifier", "shop.orders")
    return IcebergSource.model_validate(
        {
            "name": "lake",
            "kind": "iceberg",
            "catalog": "made",
            "catalog_url": f"sqlite:///{place}/catalog.db",
            "warehouse": f"file://{place}",
            "rows_per_part": rows_per_part,
            "time_zone": time_zone,
            "tables": {"orders": declared},
        }
    )


def test_files_are_parts_in_the_order_of_their_commits(orders: Table, tmp_path: Path) -> None:
    for start in (0, 10, 20):
        orders.append(rows(start, start + 10))
    state, parts, table = read(source(tmp_path))
    assert state["orders"]["snapshot"] == orders.current_snapshot().snapshot_id  # type: ignore[union-attr]
    assert [part.read().table.num_rows for part in parts] == [10, 10, 10]
    assert table.combine_chunks().equals(rows(0, 30))


def test_a_metadata_file_reads_as_the_catalog_does(orders: Table, tmp_path: Path) -> None:
    orders.append(rows(0, 10))
    by_catalog, by_file = read(source(tmp_path)), read(source(tmp_path, metadata=orders.metadata_location))
    assert by_catalog[0] == by_file[0] and by_catalog[2].equals(by_file[2])
    assert [part.fingerprint for part in by_catalog[1]] == [part.fingerprint for part in by_file[1]]


def test_an_old_snapshot_reads_as_it_was(orders: Table, tmp_path: Path) -> None:
    orders.append(rows(0, 10))
    then, moment = read(source(tmp_path)), datetime.now(UTC)
    orders.append(rows(10, 20))
    orders.delete("id = 5")
    assert read(source(tmp_path))[2]["id"].to_pylist() == [*range(10, 20), *[i for i in range(10) if i != 5]]
    for pin in ({"snapshot": then[0]["orders"]["snapshot"]}, {"at": moment.isoformat()}):
        again = read(source(tmp_path, **pin))
        assert again[0] == then[0] and again[2].equals(then[2])


def test_rows_of_a_position_delete_file_are_left_out(orders: Table, tmp_path: Path) -> None:
    orders.append(rows(0, 350))
    whole = read(source(tmp_path))
    delete_positions(orders, [5, 349], tmp_path)
    _, parts, table = read(source(tmp_path))
    assert table["id"].to_pylist() == [i for i in range(350) if i not in (5, 349)]
    assert not {part.fingerprint for part in parts} & {part.fingerprint for part in whole[1]}


def delete_positions(table: Table, positions: list[int], folder: Path) -> None:
    """Commit a position delete file, as engines that merge on read do; pyiceberg itself rewrites files."""
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    [task] = table.scan().plan_files()
    path = folder / "deletes.parquet"
    paths = pa.array([task.file.file_path] * len(positions))
    pq.write_table(pa.table({"file_path": paths, "pos": pa.array(positions, pa.int64())}), path)
    deletes = DataFile.from_args(
        content=DataFileContent.POSITION_DELETES,
        file_path=f"file://{path}",
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=len(positions),
        file_size_in_bytes=path.stat().st_size,
    )
    deletes.spec_id = 0
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as commit:
        commit.append_data_file(deletes)


def test_a_missing_file_is_a_clear_error(orders: Table, tmp_path: Path) -> None:
    orders.append(rows(0, 10))
    for file in tmp_path.rglob("data/*.parquet"):
        file.unlink()
    with pytest.raises(SourceError, match=r"Table orders: .*parquet, a file of snapshot \d+, is gone"):
        read(source(tmp_path))


def test_snapshots_and_tables_that_do_not_exist_are_named(orders: Table, tmp_path: Path) -> None:
    orders.append(rows(0, 10))
    with pytest.raises(SourceError, match="Table orders: the Iceberg table has no snapshot 7"):
        read(source(tmp_path, snapshot=7))
    with pytest.raises(SourceError, match="Table orders: the Iceberg table has no snapshot 2001-01-01"):
        read(source(tmp_path, at="2001-01-01T00:00:00Z"))
    with pytest.raises(ValueError, match="at: expected none beside snapshot"):
        source(tmp_path, at="2001-01-01T00:00:00Z", snapshot=7)
    with pytest.raises(SourceError, match=r"Table orders: the Iceberg table shop.none cannot be opened"):
        read(source(tmp_path, identifier="shop.none"))
    with pytest.raises(SourceError, match="cannot be opened"):
        read(source(tmp_path, metadata=str(tmp_path / "none.metadata.json")))


def test_a_password_and_a_missing_catalog_are_refused() -> None:
    table = {"identifier": "a.b", "columns": {"id": "int64"}}
    for body, message in (
        ({"catalog_url": "postgresql://u:hunter2@host/db"}, "holds a password"),
        ({}, "give catalog, the name"),
    ):
        with pytest.raises(ValidationError, match=message) as caught:
            IcebergSource.model_validate({"name": "lake", "tables": {"orders": table}} | body)
        assert "hunter2" not in str(caught.value)
