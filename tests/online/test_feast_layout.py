"""Feast's own clients read what our stores hold, in Redis and in SQLite; the docs say what they see."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
from feast.protos.feast.serving.ServingService_pb2 import FieldStatus
from feast.types import Float32, Float64, Int64, String
from feast.value_type import ValueType
from redis import Redis

from gatehouse.online.redis import RedisOnline
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore
from tests.features.online_rows import NOON, VIEW, counted, counts, rows

KINDS = {"delay": Float32, "count": Int64, "name": String, "mean": Float64}


@pytest.fixture(params=["redis", "sqlite"])
def both(request: pytest.FixtureRequest, server: Redis, tmp_path: Path) -> tuple[OnlineStore, FeatureStore]:
    """One of our stores, and Feast's own store on the same server or file."""
    server.flushall()
    path = tmp_path / "online.db"
    settings: dict[str, Any] = {"type": "sqlite", "path": str(path)}
    online: OnlineStore = SqliteOnline(path, "flights")
    if request.param == "redis":
        settings = {"type": "redis", "connection_string": f"127.0.0.1:{server.port}"}
        online = RedisOnline(server, "flights")
    config = RepoConfig(
        project="flights",
        registry=str(tmp_path / "registry.db"),
        provider="local",
        online_store=settings,
        entity_key_serialization_version=3,
    )
    feast = FeatureStore(config=config)
    carrier = Entity(name="carrier", join_keys=["carrier"], value_type=ValueType.STRING)
    source = FileSource(path=str(tmp_path / "x.parquet"), timestamp_field="event")
    schema = [Field(name=name, dtype=kind) for name, kind in KINDS.items()]
    view = FeatureView(name="delays", entities=[carrier], ttl=timedelta(minutes=30), schema=schema, source=source)
    feast.apply([carrier, view])
    return online, feast


def served(feast: FeatureStore, *carriers: str) -> dict[str, list[Any]]:
    features = [f"delays:{name}" for name in KINDS]
    result = feast.get_online_features(features, [{"carrier": carrier} for carrier in carriers]).to_dict()
    return {name: result[name] for name in KINDS}


def test_feasts_own_client_reads_what_we_write(both: tuple[OnlineStore, FeatureStore]) -> None:
    online, feast = both
    online.write(VIEW, rows(("AA", 0, 1, 1.5, -3, "Zürich ✈", 0.1), ("B6", 0, 1, None, None, None, None)))
    assert served(feast, "AA", "B6", "ZZ") == {
        "delay": [1.5, None, None],
        "count": [-3, None, None],
        "name": ["Zürich ✈", None, None],
        "mean": [0.1, None, None],
    }


def test_feasts_own_client_keeps_expired_values_and_tells_their_time(both: tuple[OnlineStore, FeatureStore]) -> None:
    """The row is years older than its view's ttl: null to our readers, a value that counts as present to Feast's."""
    online, feast = both
    online.write(VIEW, counted(("AA", 0, 0, 1)))
    response = feast.get_online_features(["delays:count"], [{"carrier": "AA"}])
    result = response.proto.results[list(response.proto.metadata.feature_names.val).index("count")]
    assert response.to_dict()["count"] == [1]
    assert result.event_timestamps[0].seconds == NOON.timestamp()
    assert result.statuses[0] == FieldStatus.PRESENT
    assert counts(online, "AA", datetime.now(UTC)) == [None, None]
