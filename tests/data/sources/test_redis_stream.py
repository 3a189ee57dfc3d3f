"""Bounded reads of Redis Streams, from a real server."""

import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import redis

from gatehouse.data.sources.redis_stream import RedisStreamReader, RedisStreamSource
from gatehouse.errors import SourceError
from tests.data.sources.reading import ids, take

COLUMNS = {"id": "int64", "item": "string"}


@pytest.fixture
def server(redis_socket: Path) -> Iterator[redis.Redis]:
    """A client of an empty server."""
    client = redis.Redis.from_url(f"unix://{redis_socket}")
    client.flushall()
    yield client
    client.close()


def source(redis_socket: Path, size: int = 10, time_zone: str = "", **table: Any) -> RedisStreamSource:
    return RedisStreamSource.model_validate(
        {
            "name": "events",
            "url": f"unix://{redis_socket}",
            "messages_per_part": size,
            "time_zone": time_zone,
            "tables": {"orders": {"stream": "orders", "columns": COLUMNS} | table},
        }
    )


def add(server: redis.Redis, start: int, stop: int) -> None:
    for i in range(start, stop):
        server.xadd("orders", {"id": i, "item": f"té {i}"}, id=f"{1_700_000_000_000 + i}-0")


def test_messages_become_typed_rows_in_fixed_runs(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 25)
    state, parts, rows = take(source(redis_socket))
    assert [part.rows for part in parts] == [10, 10, 5]
    assert ids(rows) == list(range(25))
    assert state["orders"]["to"] == "1700000000024-0"
    assert parts[1].position == {"from": "1700000000010-0", "to": "1700000000019-0", "messages": 10}
    assert str(redis_socket) not in json.dumps(state)


def test_a_reader_killed_between_read_and_publish_loses_and_doubles_nothing(
    server: redis.Redis, redis_socket: Path
) -> None:
    add(server, 0, 15)
    _, earlier_parts, rows = take(source(redis_socket))
    add(server, 15, 32)
    spec = source(redis_socket).model_dump_json()
    program = (
        "import os, signal, sys\n"
        "from gatehouse.data.sources.redis_stream import RedisStreamReader, RedisStreamSource\n"
        "reader = RedisStreamReader(RedisStreamSource.model_validate_json(sys.argv[1]))\n"
        "[part.read() for part in reader.parts('orders')]\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, spec], check=False).returncode == -9
    assert ids(take(source(redis_socket), earlier_parts, rows)[2]) == list(range(32))


def test_trimming_during_the_read_is_a_clear_error(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 40)
    with RedisStreamReader(source(redis_socket)) as reader:
        parts = reader.parts("orders")
        next(parts)
        server.xtrim("orders", minid="1700000000020-0", approximate=False)
        with pytest.raises(SourceError, match="no longer holds the message 1700000000009-0"):
            list(parts)


def test_a_changed_declaration_reads_anew_while_the_stream_is_whole(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 25)
    _, earlier_parts, _ = take(source(redis_socket))
    changed = source(redis_socket, columns={"id": "int64"})
    assert ids(take(changed, earlier_parts)[2]) == list(range(25))
    server.xtrim("orders", minid="1700000000005-0", approximate=False)
    with pytest.raises(SourceError, match="its declaration changed, so it has to be read again"):
        take(changed, earlier_parts)


def test_a_stream_made_anew_is_not_taken_for_the_old_one(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 10, 25)
    _, earlier_parts, rows = take(source(redis_socket))
    server.delete("orders")
    add(server, 0, 5)
    with pytest.raises(SourceError, match="was deleted and created again"):
        take(source(redis_socket), earlier_parts, rows)


def test_json_and_the_envelope_become_columns(server: redis.Redis, redis_socket: Path) -> None:
    server.xadd("orders", {"body": json.dumps({"id": 1, "at": "2024-07-01T12:00:00+02:00"})}, id="1700000000123-7")
    server.xadd("orders", {"other": "x"})
    spec = source(
        redis_socket,
        columns={"id": "int64", "at": "timestamp", "message": "string", "sent": "timestamp"},
        json_field="body",
        envelope={"message": "id", "sent": "time"},
    )
    with RedisStreamReader(spec) as reader:
        [part] = reader.parts("orders")
        raw = part.read()
    assert raw.table.to_pylist() == [
        {
            "id": 1,
            "at": datetime(2024, 7, 1, 10, tzinfo=UTC),
            "message": "1700000000123-7",
            "sent": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        }
    ]
    assert raw.rejected is not None and "the message has no value" in raw.rejected["reason"][0].as_py()


def test_a_missing_stream_and_a_missing_server_are_named(
    server: redis.Redis, redis_socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SourceError, match="Table orders: Redis has no stream 'orders'"):
        take(source(redis_socket))
    monkeypatch.setenv("EVENTS_URL", "redis://:s3cr3t@127.0.0.1:1/0")
    body = source(redis_socket).model_dump() | {"url": "", "url_env": "EVENTS_URL"}
    with pytest.raises(SourceError, match="Source events, table orders: Redis cannot be read") as caught:
        take(RedisStreamSource.model_validate(body))
    assert "s3cr3t" not in str(caught.value)
