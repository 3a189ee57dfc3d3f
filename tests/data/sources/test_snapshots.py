"""Snapshots of databases and lakehouse tables: whole, once, and at the price of what is new."""

import sqlite3
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot import parts
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import SourceSpec, parse_source
from gatehouse.store.store import ArtifactStore

COLUMNS = {"id": "int64", "at": "timestamp"}
TABLE: dict[str, Any] = {"columns": COLUMNS, "event_time": "at"}
START = datetime(2024, 1, 1, tzinfo=UTC)


def database(tmp_path: Path, start: int, stop: int) -> SourceSpec:
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY, at text)")
        rows = [(i, (START + timedelta(minutes=i)).isoformat()) for i in range(start, stop)]
        connection.executemany("INSERT INTO orders VALUES (?, ?)", rows)
    connection.close()
    orders = TABLE | {"table": "orders", "order_by": ["id"], "append_only": True}
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    return parse_source({"name": "shop", "kind": "sql", "url": url, "rows_per_part": 100, "tables": {"orders": orders}})


def lake(tmp_path: Path, start: int, stop: int) -> SourceSpec:
    rows = {"id": list(range(start, stop)), "at": [START + timedelta(minutes=i) for i in range(start, stop)]}
    deltalake.write_deltalake(str(tmp_path / "lake"), pa.table(rows), mode="append")
    orders = TABLE | {"uri": str(tmp_path / "lake")}
    return parse_source({"name": "lake", "kind": "delta", "rows_per_part": 100, "tables": {"orders": orders}})


def take(spec: SourceSpec, store: ArtifactStore) -> SnapshotResult:
    return snapshot(SnapshotRequest(source=spec), store)


def ids(result: SnapshotResult, store: ArtifactStore) -> list[int]:
    dataset = store.manifest(result.snapshot).derived_from["orders"]
    return [value for path in store.paths(dataset) for value in pq.read_table(path)["id"].to_pylist()]


def blobs(store: ArtifactStore) -> dict[str, int]:
    """Size of every blob of rows, by name."""
    return {path.name: path.stat().st_size for path in (Path(store.address) / "blobs").rglob("*.parquet")}


@pytest.fixture(params=["sql", "delta"])
def grow(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[int, int], SourceSpec]:
    """A source of each kind to which rows are appended."""
    return partial(database if request.param == "sql" else lake, tmp_path)


def test_a_snapshot_holds_every_row_once_and_an_unchanged_source_gives_the_same(
    grow: Callable[[int, int], SourceSpec], store: ArtifactStore
) -> None:
    spec = grow(0, 250)
    first = take(spec, store)
    assert ids(first, store) == list(range(250))
    assert take(spec, store).snapshot == first.snapshot
    assert first.as_of == (START + timedelta(minutes=249)).isoformat()


def test_one_percent_of_new_rows_adds_one_blob(
    grow: Callable[[int, int], SourceSpec], store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(grow(0, 1000), store)
    before = blobs(store)
    stored: list[int] = []
    store_one = parts._store

    def counted(part: Any, *args: Any) -> Any:
        stored_part = store_one(part, *args)
        stored.append(stored_part.read)
        return stored_part

    monkeypatch.setattr(parts, "_store", counted)
    second = take(grow(1000, 1010), store)
    assert ids(second, store) == list(range(1010))
    assert stored == [10]
    assert len(set(blobs(store)) - set(before)) == 1


def test_a_crash_before_the_publish_loses_and_doubles_nothing(
    grow: Callable[[int, int], SourceSpec], store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(grow(0, 150), store)
    spec = grow(150, 320)
    with monkeypatch.context() as patched:

        def crash(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr(ArtifactStore, "publish", crash)
        with pytest.raises(KeyboardInterrupt):
            take(spec, store)
    assert ids(take(spec, store), store) == list(range(320))


def test_declaring_a_source_imports_no_driver() -> None:
    program = (
        "import sys, gatehouse.data.snapshot.stage\n"
        "heavy = {'pyarrow', 'duckdb', 'sqlalchemy', 'deltalake', 'pyiceberg', 'redis'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.strip() == "[]"


def test_other_rows_in_the_same_state_are_a_warning(tmp_path: Path, store: ArtifactStore) -> None:
    body = database(tmp_path, 0, 3).model_dump(mode="json")
    body["tables"]["orders"]["guards"] |= {"rewrite": "accept", "late": "accept"}
    request = SnapshotRequest(source=parse_source(body))
    assert snapshot(request, store).warnings == ()
    with sqlite3.connect(tmp_path / "shop.db") as connection:
        connection.execute("UPDATE orders SET at = '2023-01-01T00:00:00Z' WHERE id = 1")
    assert snapshot(request, store).unchanged
    (warning,) = snapshot(request.model_copy(update={"force": "again"}), store).warnings
    assert "and gave other rows" in warning
