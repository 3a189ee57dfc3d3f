"""Feast stores on a temporary directory, for the tests of the offline store."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from feast import FeatureStore, FileSource, RepoConfig

ASOF_STORE = "gatehouse.features.point_in_time.offline_store.AsofOfflineStore"
NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")


def minute(*minutes: int) -> list[datetime]:
    return [NOON + timedelta(minutes=number) for number in minutes]


def opened(folder: Path, store: str = ASOF_STORE, **options: Any) -> FeatureStore:
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
    return FileSource(path=str(path), timestamp_field="event_timestamp", created_timestamp_column="created", **options)


def write(path: Path, columns: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(dict(columns)), path)


@dataclass(frozen=True)
class Row:
    """A feature row; times in any unit."""

    key: str | None
    event: int | None
    created: int | None
    value: int | None


def expected(key: str | None, time: int | None, rows: list[Row], ttl: int | None, event_time_only: bool) -> int | None:
    """The value for one entity row, as docs/point-in-time.md states it."""
    usable = []
    for position, row in enumerate(rows):
        if key is None or time is None or row.key != key or row.event is None or row.event > time:
            continue
        created = row.event if row.created is None else row.created
        if event_time_only or created <= time:
            usable.append((row.event, created, position, row.value))
    if not usable or time is None:
        return None
    event, _, _, value = max(usable)
    return value if ttl is None or time - event <= ttl else None
