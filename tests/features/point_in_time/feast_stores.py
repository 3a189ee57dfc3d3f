"""Feast stores on a temporary directory, for the tests of the offline store."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from feast import FeatureStore, FileSource, RepoConfig

OURS = "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def minute(*minutes: int) -> list[datetime]:
    """Times so many minutes after `NOON`."""
    return [NOON + timedelta(minutes=number) for number in minutes]


def opened(folder: Path, store: str = OURS, **options: Any) -> FeatureStore:
    """An empty Feast store with its registry in `folder`."""
    config = RepoConfig(
        project="test",
        provider="local",
        registry=str(folder / f"{store.rsplit('.', 1)[-1]}.db"),
        offline_store={"type": store, **options},
        online_store={"type": "sqlite", "path": str(folder / "online.db")},
        entity_key_serialization_version=3,
        repo_path=folder,
    )
    return FeatureStore(config=config)


def source(path: Path | str, **options: Any) -> FileSource:
    """A source with an event time and a created time."""
    return FileSource(path=str(path), timestamp_field="event_timestamp", created_timestamp_column="created", **options)


def write(path: Path, columns: Mapping[str, Any]) -> None:
    """Write a Parquet file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)
