"""Files at an address in pieces: the snapshot of one process, whatever workers read its files."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gatehouse.data.snapshot import file_pieces
from gatehouse.data.snapshot.file_pieces import FilesRequest, store_files
from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources.files import FolderSource
from gatehouse.errors import MisfitError, SourceError
from gatehouse.pieces.engine import Engine
from gatehouse.runtime.variables import ENGINE
from gatehouse.store.store import ArtifactStore
from tests.pieces.ray_cluster import ray_cluster

COLUMNS = {"id": "int64", "at": "timestamp", "value": "double"}
TABLES: dict[str, Any] = {
    "events": {
        "member": "events/*",
        "columns": COLUMNS,
        "event_time": "at",
        "on_invalid": "reject",
        "reject_limit": 0.2,
    },
    "places": {"member": "places.csv", "columns": {"name": "string"}},
}
WINDOW = "2024-01-01/2024-03-01"


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with ray_cluster() as address:
        yield address


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    (tmp_path / "raw" / "events").mkdir(parents=True)
    (tmp_path / "raw" / "places.csv").write_text("name\nhere\n")
    for number in range(5):
        write(tmp_path, number)
    body = {"name": "small", "path": f"file://{tmp_path}/raw", "rows_per_part": 7, "tables": TABLES}
    return FolderSource.model_validate(body)


def write(folder: Path, number: int, rows: int = 20) -> None:
    """A file of events: in Parquet every third, else a CSV of which the last row does not fit."""
    path = folder / "raw" / "events" / f"{number}.csv"
    ids = range(100 * number, 100 * number + rows)
    texts = [f"2024-0{number % 4 + 1}-{row % 28 + 1:02d}T00:00:00Z" for row in range(rows)]
    if number % 3 == 1:
        times = pa.array(texts).cast(pa.timestamp("us", "UTC"))
        table = pa.table({"id": pa.array(ids), "at": times, "value": pa.array(ids).cast(pa.float64())})
        pq.write_table(table, path.with_suffix(".parquet"))
        return
    lines = [f"{key},{text},{key}.5" for key, text in zip(ids, texts, strict=True)]
    path.write_text("\n".join(["id,at,value", *lines, "1,2024-01-01T00:00:00Z,much", ""]))


def taken(source: FolderSource, store: ArtifactStore) -> SnapshotResult:
    return snapshot(SnapshotRequest(source=source, window=WINDOW), store)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("size", "engine"),
    [
        (1000, {"workers": 2}),
        (3000, {"workers": 1}),
        (3000, {"workers": 2}),
        (3000, {"kind": "ray", "workers": 2}),
    ],
    ids=lambda value: value if isinstance(value, int) else "-".join(map(str, value.values())),
)
def test_workers_give_the_snapshot_of_one_process(
    source: FolderSource,
    tmp_path: Path,
    size: int,
    engine: dict[str, Any],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    address = {"address": request.getfixturevalue("cluster")} if "kind" in engine else {}
    stores = [ArtifactStore.open(tmp_path / name) for name in ("alone", "divided")]
    for round_ in range(2):
        monkeypatch.delenv(ENGINE, raising=False)
        alone = taken(source, stores[0])
        assert alone.rejected_rows and not list(stores[0].objects.list("memo/store_files"))
        with monkeypatch.context() as patch:
            patch.setenv(ENGINE, json.dumps(engine | address))
            patch.setattr(file_pieces, "engine_of", lambda _: Engine(kind="ray"))
            patch.setattr(file_pieces, "BYTES", size)
            divided = taken(source, stores[1])
        assert divided == alone
        first, second = (store.manifest(alone.snapshot).derived_from["events"] for store in stores)
        assert first == second and stores[1].intact(second, print)
        pieces = len(list(stores[1].objects.list("memo/store_files")))
        assert pieces == 5 + 3 * round_ if size == 1000 else 1 < pieces < 5 + 3 * round_, pieces
        for number in (5, 6, 7):  # The others are not read again.
            write(tmp_path, number, 25)


def test_files_that_are_gone_changed_or_misfit_are_errors(source: FolderSource, store: ArtifactStore) -> None:
    def request(**identities: str) -> FilesRequest:
        names = {f"events/{name}.csv": identity for name, identity in identities.items()}
        body: dict[str, Any] = {"table": "events", "columns": tuple(COLUMNS), "window": "", "identities": names}
        return FilesRequest(source=source, **body, location=source.path)

    with pytest.raises(SourceError, match=r"events/9\.csv is gone"):
        store_files.function(request(**{"9": "xxh3_128:0"}), store)
    with pytest.raises(SourceError, match=r"0\.csv changed"):
        store_files.function(request(**{"0": "xxh3_128:0"}), store)
    strict = {**TABLES, "events": {**TABLES["events"], "on_invalid": "fail"}}
    failing = FolderSource.model_validate({"name": "small", "path": source.path, "tables": strict})
    with pytest.raises(MisfitError, match=r"events/0\.csv, line 22"):
        store_files.function(request(**{"0": "xxh3_128:0"}).model_copy(update={"source": failing}), store)
