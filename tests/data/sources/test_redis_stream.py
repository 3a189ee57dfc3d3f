"""Bounded reads of Redis Streams, from a real server."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import redis
from pydantic import ValidationError

from gatehouse.data.sources.base import KnownPart
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


def test_incremental_snapshots_hold_every_message_once_and_keep_their_full_parts(
    server: redis.Redis, redis_socket: Path
) -> None:
    known: tuple[KnownPart, ...] = ()
    rows: dict[str, pa.Table] = {}
    for start, stop in ((0, 3), (3, 10), (10, 10), (10, 36), (36, 41)):
        add(server, start, stop)
        before = known
        _, known, rows = take(source(redis_socket), known, rows)
        assert ids(rows) == list(range(stop))
        full = [part for part in before if part.rows == 10]
        assert list(known[: len(full)]) == full
    assert take(source(redis_socket))[1] == known


def test_only_new_messages_are_fetched(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 1000)
    _, known, rows = take(source(redis_socket, 100))
    add(server, 1000, 1010)
    server.config_resetstat()
    with RedisStreamReader(source(redis_socket, 100)) as reader:
        parts = list(reader.parts("orders", known))
    assert len(parts) == 11 and parts[-1].position["messages"] == 10
    assert server.info("commandstats")["cmdstat_xrange"]["calls"] <= 3
    assert ids(take(source(redis_socket, 100), known, rows)[2]) == list(range(1010))


def test_messages_that_arrive_during_the_read_are_in_the_next_snapshot(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 15)
    with RedisStreamReader(source(redis_socket)) as reader:
        reader.state()
        parts = reader.parts("orders")
        first = next(parts)
        add(server, 15, 40)
        rest = list(parts)
    assert [part.position["messages"] for part in (first, *rest)] == [10, 5]


def test_a_reader_killed_between_read_and_publish_loses_and_doubles_nothing(
    server: redis.Redis, redis_socket: Path
) -> None:
    add(server, 0, 15)
    _, known, rows = take(source(redis_socket))
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
    assert ids(take(source(redis_socket), known, rows)[2]) == list(range(32))


def test_messages_that_were_read_may_be_trimmed(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 25)
    _, known, rows = take(source(redis_socket))
    server.xtrim("orders", minid="1700000000024-0", approximate=False)
    _, known, rows = take(source(redis_socket), known, rows)
    assert ids(rows) == list(range(25))
    add(server, 25, 38)
    _, known, rows = take(source(redis_socket), known, rows)
    assert ids(rows) == list(range(38))
    assert [part.rows for part in known] == [10, 10, 5, 10, 3]


def test_messages_trimmed_before_they_were_read_are_a_clear_error(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 25)
    _, known, rows = take(source(redis_socket))
    add(server, 25, 40)
    server.xtrim("orders", minid="1700000000030-0", approximate=False)
    with pytest.raises(SourceError, match="no longer holds the message 1700000000024-0, up to which it was read"):
        take(source(redis_socket), known, rows)


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
    _, known, _ = take(source(redis_socket))
    changed = source(redis_socket, columns={"id": "int64"})
    assert ids(take(changed, known)[2]) == list(range(25))
    server.xtrim("orders", minid="1700000000005-0", approximate=False)
    with pytest.raises(SourceError, match="its declaration changed, so it has to be read again"):
        take(changed, known)


def test_a_stream_made_anew_is_not_taken_for_the_old_one(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 10, 25)
    _, known, rows = take(source(redis_socket))
    server.delete("orders")
    add(server, 0, 5)
    with pytest.raises(SourceError, match="was deleted and created again"):
        take(source(redis_socket), known, rows)


def test_messages_that_do_not_fit_are_set_aside_with_their_reason(server: redis.Redis, redis_socket: Path) -> None:
    for fields in ({"id": 1}, {"id": "x"}, {"id": 2**63}, {"item": b"\xff"}, {"id": 2, "item": "", "more": "?"}):
        server.xadd("orders", fields)
    with RedisStreamReader(source(redis_socket)) as reader:
        [part] = reader.parts("orders")
        raw = part.read()
    assert raw.table.to_pylist() == [{"id": 1, "item": None}, {"id": 2, "item": ""}]
    assert raw.rejected is not None
    first, *others = raw.rejected.to_pylist()
    assert len(others) == 2
    assert (first["column"], first["reason"]) == ("id", "expected a whole number of 64 bits or a null")
    assert (first["found"], first["raw"]) == ("'x'", '{"id": "x"}')
    with RedisStreamReader(source(redis_socket, on_invalid="fail")) as reader:
        [part] = reader.parts("orders")
        with pytest.raises(SourceError, match=r"Table orders, message \d+-\d+: column id: expected"):
            part.read()


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


def test_two_readers_at_once_see_the_same_while_a_writer_writes(server: redis.Redis, redis_socket: Path) -> None:
    add(server, 0, 200)
    writer = threading.Thread(target=add, args=(server, 200, 600))
    with RedisStreamReader(source(redis_socket)) as one, RedisStreamReader(source(redis_socket)) as other:
        assert one.state() == other.state()
        writer.start()
        seen = [[part.fingerprint for part in reader.parts("orders")] for reader in (one, other)]
    writer.join()
    assert seen[0] == seen[1] and len(seen[0]) == 20


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


def test_a_wrong_password_is_not_told(server: redis.Redis, redis_socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.acl_setuser("guarded", enabled=True, passwords=["+right"], keys=["*"], commands=["+@all"])
    monkeypatch.setenv("EVENTS_URL", f"unix://guarded:s3cr3t@{redis_socket}")
    body = source(redis_socket).model_dump() | {"url": "", "url_env": "EVENTS_URL"}
    with pytest.raises(SourceError, match=r"Redis cannot be read: .*invalid username-password pair") as caught:
        take(RedisStreamSource.model_validate(body))
    assert "s3cr3t" not in str(caught.value)


def test_a_password_in_the_declaration_is_refused() -> None:
    tables = {"orders": {"stream": "orders", "columns": COLUMNS}}
    with pytest.raises(ValidationError, match="url_env") as caught:
        RedisStreamSource.model_validate({"name": "events", "url": "redis://:hunter2@host/0", "tables": tables})
    assert "hunter2" not in str(caught.value)


def test_a_stream_keeps_its_order(redis_socket: Path) -> None:
    with pytest.raises(ValidationError, match="messages stand in the order of their stream"):
        source(redis_socket, order_by=["id"])


def test_an_empty_stream_has_no_parts(server: redis.Redis, redis_socket: Path) -> None:
    server.xgroup_create("orders", "readers", mkstream=True)
    assert take(source(redis_socket))[1] == ()
