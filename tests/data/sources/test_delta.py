"""Reading Delta tables, each a real one."""

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from gatehouse.data.sources.lakehouse import DeltaReader, DeltaSource
from gatehouse.errors import SourceError
from tests.data.sources.reading import COLUMNS, read, rows


def append(folder: Path, start: int, stop: int, **options: Any) -> None:
    deltalake.write_deltalake(str(folder), rows(start, stop), mode="append", **options)


def source(folder: Path, rows_per_part: int = 100, time_zone: str = "", **table: Any) -> DeltaSource:
    orders = {"uri": str(folder), "columns": COLUMNS} | table
    return DeltaSource.model_validate(
        {
            "name": "lake",
            "kind": "delta",
            "rows_per_part": rows_per_part,
            "time_zone": time_zone,
            "tables": {"orders": orders},
        }
    )


def test_files_are_parts_in_the_order_of_their_commits(tmp_path: Path) -> None:
    for start in (0, 10, 20):
        append(tmp_path, start, start + 10)
    state, parts, table = read(source(tmp_path))
    assert state["orders"]["version"] == 2
    assert [part.read().table.num_rows for part in parts] == [10, 10, 10]
    assert table.equals(rows(0, 30))


def test_an_old_version_reads_as_it_was(tmp_path: Path) -> None:
    append(tmp_path, 0, 10)
    then = read(source(tmp_path))
    append(tmp_path, 10, 20)
    deltalake.DeltaTable(str(tmp_path)).delete("id = 5")
    assert read(source(tmp_path))[2]["id"].to_pylist() == [*range(10, 20), *[i for i in range(10) if i != 5]]
    again = read(source(tmp_path, version=0))
    assert again[0] == then[0] and again[2].equals(then[2])
    assert [part.fingerprint for part in again[1]] == [part.fingerprint for part in then[1]]


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2], [1, 3, 3, 0, 2]])
def test_a_large_file_is_cut_into_runs_that_can_be_read_in_any_order(tmp_path: Path, order: list[int]) -> None:
    append(tmp_path, 0, 350)
    with DeltaReader(source(tmp_path)) as reader:
        parts = list(reader.parts("orders"))
        read_now = {index: parts[index].read().table for index in order}
    assert [read_now[index].num_rows for index in range(4)] == [100, 100, 100, 50]
    assert pa.concat_tables([read_now[index] for index in range(4)]).combine_chunks().equals(rows(0, 350))
    assert len({part.fingerprint for part in parts}) == 4


def test_a_vacuumed_file_is_a_clear_error(tmp_path: Path) -> None:
    append(tmp_path, 0, 10)
    deltalake.write_deltalake(str(tmp_path), rows(10, 20), mode="overwrite")
    deltalake.DeltaTable(str(tmp_path)).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert read(source(tmp_path))[2].num_rows == 10
    with pytest.raises(SourceError, match=r"Table orders: part-.*parquet, a file of version 0, is gone: it was vac"):
        read(source(tmp_path, version=0))


def test_versions_and_tables_that_do_not_exist_are_named(tmp_path: Path) -> None:
    append(tmp_path, 0, 10)
    with pytest.raises(SourceError, match="Table orders: version 7 of the Delta table"):
        read(source(tmp_path, version=7))
    with pytest.raises(SourceError, match=r"Table orders: version latest of the Delta table .*none"):
        read(source(tmp_path / "none"))


def test_a_table_with_deletion_vectors_is_refused_clearly(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), rows(0, 10), configuration={"delta.enableDeletionVectors": "true"})
    with pytest.raises(SourceError, match=r"Table orders: the Delta table needs .*deletionVectors"):
        read(source(tmp_path))
