"""A source that tests write: event rows in a folder, cut into small parts, and the snapshots taken of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.catalog import parse_source
from gatehouse.store.manifest import Manifest
from gatehouse.store.store import ArtifactStore

HEADER = "id,at,value\n"


def rows(start: int, stop: int, value: float = 0.5) -> str:
    """One row a minute."""
    return "".join(
        f"{number},2024-01-{1 + number // 1440:02d}T{number // 60 % 24:02d}:{number % 60:02d}:00Z,{number * value}\n"
        for number in range(start, stop)
    )


@dataclass
class Events:
    """A folder with `events.csv`, declared as one table, and a store."""

    folder: Path
    store: ArtifactStore
    table: dict[str, Any] = field(default_factory=dict)
    rows_per_part: int = 30
    more_tables: dict[str, Any] = field(default_factory=dict)
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def csv(self) -> Path:
        """The file itself."""
        return self.folder / "events.csv"

    def write(self, text: str | bytes) -> None:
        """Write the file."""
        self.csv.write_bytes(text if isinstance(text, bytes) else text.encode())

    def take(self, store: ArtifactStore | None = None, **more: Any) -> SnapshotResult:
        """Take a snapshot."""
        columns = {"id": "int64", "at": "timestamp", "value": "double"}
        table = {"member": "events.csv", "columns": columns, "event_time": "at"} | self.table
        body = {
            "name": "small",
            "kind": "files",
            "path": str(self.folder),
            "tables": {"events": table} | self.more_tables,
        }
        source = parse_source(body | self.keys | {"rows_per_part": self.rows_per_part})
        return snapshot(SnapshotRequest(source=source, **more), store or self.store)

    def dataset(self, taken: SnapshotResult) -> Manifest:
        """The manifest of the table."""
        return self.store.manifest(self.store.manifest(taken.snapshot).derived_from["events"])

    def read(self, taken: SnapshotResult) -> pa.Table:
        """The rows of the table."""
        manifest = self.dataset(taken)
        return pa.concat_tables([pq.read_table(path) for path in self.store.paths(manifest.reference)])


@pytest.fixture
def events(tmp_path: Path, store: ArtifactStore) -> Events:
    """The source, with 600 rows in 20 parts."""
    folder = tmp_path / "raw"
    folder.mkdir()
    made = Events(folder, store)
    made.write(HEADER + rows(0, 600))
    return made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """How many parts were read since it was last asked."""
    from gatehouse.data.snapshot import parts

    count = [0]
    store_part = parts._store

    def counted(*arguments: Any) -> Any:
        count[0] += 1
        return store_part(*arguments)

    def reads_since() -> int:
        total, count[0] = count[0], 0
        return total

    monkeypatch.setattr(parts, "_store", counted)
    return reads_since
