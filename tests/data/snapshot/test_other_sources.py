"""The stage over sources that are no files: what grew is read alone, and the record says what makes it repeatable."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from gatehouse.data.snapshot.deliveries import Deliveries
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.store.store import ArtifactStore

COLUMNS = {"id": "int64", "at": "timestamp"}


def _take(store: ArtifactStore, table: dict[str, Any], **source: Any) -> SnapshotResult:
    body = {"name": "s", **source, "tables": {"events": {"columns": COLUMNS, "event_time": "at", **table}}}
    return snapshot(SnapshotRequest(source=parse_source(body)), store)


def _state(store: ArtifactStore) -> Any:
    """What the newest delivery was read from."""
    newest = Deliveries(store, "s", "").newest()
    assert newest is not None
    return newest.state["events"]


def test_a_database_that_grew_is_read_from_the_last_key_on(
    tmp_path: Path, store: ArtifactStore, reads: Callable[[], int]
) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    table = {"table": "events", "order_by": ["id"], "append_only": True}
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE events (id INTEGER, at TEXT)")
        for stop in (1000, 1150):
            start = stop - 1000 if stop == 1000 else 1000
            rows = [(number, f"2024-01-01T00:{number // 60:02d}:{number % 60:02d}Z") for number in range(start, stop)]
            database.executemany("INSERT INTO events VALUES (?, ?)", rows)
            database.commit()
            taken = _take(store, table, kind="sql", url=url, rows_per_part=100)
            assert taken.rows == {"events": stop} and taken.warnings == ()
            assert reads() == (10 if stop == 1000 else 2)
    state = _state(store)
    assert (state["query"], state["last_key"], state["rows"]) == ("SELECT * FROM events", [1149], 1150)


def test_a_lakehouse_table_that_grew_is_read_by_its_new_files(
    tmp_path: Path, store: ArtifactStore, reads: Callable[[], int]
) -> None:
    uri = str(tmp_path / "lake")
    for number in range(3):
        at = pa.array([(number * 10 + row) * 10**6 for row in range(10)], pa.timestamp("us", "UTC"))
        rows = pa.table({"id": range(number * 10, number * 10 + 10), "at": at})
        deltalake.write_deltalake(uri, rows, mode="append")
        taken = _take(store, {"uri": uri}, kind="delta")
        assert taken.rows == {"events": 10 * number + 10} and taken.warnings == ()
        assert reads() == 1
    assert _state(store)["version"] == 2


def test_another_state_of_the_same_rows_is_the_same_snapshot(tmp_path: Path, store: ArtifactStore) -> None:
    uri = str(tmp_path / "lake")
    rows = pa.table({"id": [1, 2], "at": pa.array([1, 2], pa.timestamp("us", "UTC"))})
    deltalake.write_deltalake(uri, rows)
    before = _take(store, {"uri": uri}, kind="delta")
    deltalake.DeltaTable(uri).alter.set_table_properties({"delta.logRetentionDuration": "interval 90 days"})
    after = _take(store, {"uri": uri}, kind="delta")
    assert after.snapshot == before.snapshot and not after.unchanged


def test_other_rows_of_a_source_that_says_it_is_as_it_was_are_told(tmp_path: Path, store: ArtifactStore) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("CREATE TABLE events (id INTEGER, at TEXT)")
        database.execute("INSERT INTO events VALUES (1, '2024-01-01T00:00:01Z'), (2, '2024-01-01T00:00:02Z')")
    guards = {"rewrite": "accept", "late": "accept"}
    table = {"table": "events", "order_by": ["id"], "append_only": True, "guards": guards}
    body = {
        "name": "s",
        "kind": "sql",
        "url": url,
        "tables": {"events": {"columns": COLUMNS, "event_time": "at"} | table},
    }
    request = SnapshotRequest(source=parse_source(body))
    assert snapshot(request, store).warnings == ()
    with sqlite3.connect(tmp_path / "shop.db") as database:
        database.execute("UPDATE events SET at = '2024-01-01T00:00:00Z' WHERE id = 1")
    assert snapshot(request, store).unchanged
    (said,) = snapshot(request.model_copy(update={"force": "again"}), store).warnings
    assert said.startswith("Source s says that it is as it was, and gave other rows than then: snapshots/s/")
