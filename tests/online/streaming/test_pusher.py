"""Pushers of one folder in turn: killed anywhere, started again with fewer streams, left alone."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from gatehouse.features.database import connect, rows_of
from gatehouse.features.definitions.repository import Repository, read_repository
from gatehouse.features.point_in_time.asof_join import asof_join
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.store import offline_join, online_view
from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState
from gatehouse.online.streaming.pusher import Pusher, Start, push_streams
from gatehouse.online.streaming.stream import Message, MessageStream, open_stream
from tests.features.publishing import write_files
from tests.online.streaming.messages import KilledError, killed_at
from tests.online.streaming.test_micro_batches import Kept

NOON = datetime(2013, 1, 9, 12, tzinfo=UTC)
DEFINITIONS = """
from datetime import timedelta
from gatehouse.features.definitions import *

rides = Source(table="rides", event_time="ended")
walks = Source(table="walks", event_time="ended")
ride_messages = Stream(table="rides", key=('the "ride"',))
walk_messages = Stream(table="walks", key=('the "ride"',), lateness=timedelta(0))
driver = Entity(name="driver", type="int64")
trips = FeatureView(name="trips", entities=("driver",), window=timedelta(hours=1),
    available=Available("event_timestamp", lag=timedelta(seconds=20)), features={"fares": "numeric"})
ended = FeatureView(name="ended", entities=("driver",), window=timedelta(hours=1),
    available=Available("event_timestamp", lag=timedelta(seconds=20)), features={"fare": "numeric"})
paid = LabelView(name="paid", entities=("driver",), arrives=Available("ended"))
pay = FeatureService(name="pay", views=("trips", "ended"))
"""
HOUR = "PARTITION BY driver ORDER BY ended RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW"
FILES = {
    "definitions.py": DEFINITIONS,
    "views/trips.sql": f"SELECT driver, ended AS event_timestamp, sum(fare) OVER ({HOUR}) AS fares FROM "
    "(SELECT * FROM raw.rides UNION ALL SELECT * FROM raw.walks)",
    "views/ended.sql": "SELECT driver, ended AS event_timestamp, fare FROM raw.rides "
    "WHERE ended + INTERVAL 20 SECOND <= getvariable('as_of')",
    "labels/paid.sql": "SELECT driver, ended AS decision_time, fare > 1 AS label, ended FROM raw.rides",
}
MOMENTS = pa.timestamp("us", "UTC")
RAW = pa.schema({'the "ride"': pa.int64(), "driver": pa.int64(), "ended": MOMENTS, "fare": pa.int64()})
Trip = tuple[float, int, int, int]
"""Second of arrival, ride, second of its end, fare."""


# A ride that is sent again after it is known; another one; and one that comes a minute late, twice, and changes.
RIDES: list["Trip"] = [
    (20, 1, 10, 10),
    (31, 1, 10, 15),
    (31.5, 2, 30, 1),
    (90, 3, 29, 4),
    (90.5, 3, 29, 4),
    (91, 3, 29, 6),
]
VERSIONS = [(10, 30, 10), (10, 31.5, 15), (29, 91, 21), (30, 50, 16), (30, 91, 22)]
"""Second of the event, second from which it is known, fares of the hour until then."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return read_repository(write_files(tmp_path_factory.mktemp("repo"), FILES))


@pytest.fixture
def start(tmp_path: Path) -> Start:
    files = {}
    for view, feature in (("trips", "fares"), ("ended", "fare")):
        columns = {"driver": pa.int64(), "event_timestamp": MOMENTS, "known_from": MOMENTS, feature: pa.float32()}
        pq.write_table(pa.schema(columns).empty_table(), tmp_path / f"{view}.parquet")
        files[view] = {"known-none.parquet": tmp_path / f"{view}.parquet"}
    pq.write_table(RAW.empty_table(), tmp_path / "raw.parquet")
    raw = {table: [tmp_path / "raw.parquet"] for table in ("rides", "walks")}
    return Start(f"feature-tables/trips/sha256-{'0' * 64}", NOON, raw, files)


class Pushers:
    def __init__(self, repository: Repository, start: Start, folder: Path) -> None:
        self.repository, self.start, self.batches = repository, start, BatchFolder(folder / "push")
        self.online = SqliteOnline(folder / "online.db", "trips")

    def push(
        self,
        now: float,
        views: Sequence[str] = ("trips",),
        burst: int = 9,
        step: Callable[[str], None] = lambda _: None,
        **sent: Sequence[Trip],
    ) -> BatchState:
        """Push messages, by table, until none is left; the clock stands at a second after noon."""

        def streams(state: BatchState) -> dict[str, MessageStream]:
            opened: dict[str, MessageStream] = {}
            for table, trips in sent.items():
                after = state.positions.get(table, {}).get("", (-1,))
                opened[table] = stream = Kept([], burst)
                stream.left = [message for message in messages_of(trips) if message.position > after]
            return opened

        return self.push_from(streams, [*sent], now, views, step)

    def push_from(
        self,
        streams: Callable[[BatchState], dict[str, MessageStream]],
        tables: Sequence[str],
        now: float,
        views: Sequence[str] = ("trips",),
        step: Callable[[str], None] = lambda _: None,
        wait: float = 0.0,
    ) -> BatchState:
        pusher = Pusher(self.repository, self.start, self.batches, self.online, tables, views, step)
        clock = NOON + timedelta(seconds=now)
        interval = timedelta(seconds=10)
        return push_streams(pusher, streams, interval=interval, wait=wait, until_idle=True, clock=lambda: clock)

    def rows(self, view: str) -> list[tuple[float, ...]]:
        """Second of the event, second from which it is known, and value."""
        table = pq.read_table(self.batches.folder / "current" / "tables" / view).to_pylist()
        return sorted(
            (*((row[name] - NOON).total_seconds() for name in ("event_timestamp", "known_from")), [*row.values()][-1])
            for row in table
        )


def messages_of(trips: Sequence[Trip]) -> list[Message]:
    bodies = [
        {'the "ride"': ride, "driver": 1, "ended": (NOON + timedelta(seconds=ended)).isoformat(), "fare": fare}
        for _, ride, ended, fare in trips
    ]
    times = [NOON + timedelta(seconds=trip[0]) for trip in trips]
    return [Message("", (place,), times[place], json.dumps(body).encode()) for place, body in enumerate(bodies)]


@pytest.fixture
def pushers(repository: Repository, start: Start, tmp_path: Path) -> Pushers:
    return Pushers(repository, start, tmp_path)


def test_what_becomes_known_while_streams_are_silent_is_served(pushers: Pushers) -> None:
    """A row that arrives at 20 is known at 30; started again, it is as well."""

    def served(now: int) -> list[float | None]:
        pushers.push(now, rides=[(20, 1, 10, 10)])
        view, keys = online_view(pushers.repository.views["trips"]), pa.table({"driver": [1]})
        return list(pushers.online.read([view], keys, NOON + timedelta(seconds=now))["fares"].to_pylist())

    assert [served(now) for now in (29, 30)] == [[None], [10.0]]
    assert pushers.batches.state() == pushers.push(60, rides=[(20, 1, 10, 10)])


def test_a_view_that_reads_as_of_has_the_rows_that_time_alone_tells(pushers: Pushers) -> None:
    pushers.push(8000, ["ended"], rides=[(11, 1, 10, 10), (7300, 2, 7299, 1), (7400, 3, 7399, 1)])
    assert pushers.rows("ended") == [(10, 30, 10), (7299, 7319, 1)]


@settings(
    max_examples=3, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, phases=[Phase.generate]
)
@given(burst=st.integers(1, 6), steps=st.lists(st.sampled_from(("stored", "online", "acknowledged")), max_size=2))
def test_read_in_any_bursts_and_killed_anywhere_the_versions_are_the_same(
    repository: Repository, start: Start, tmp_path_factory: pytest.TempPathFactory, burst: int, steps: list[str]
) -> None:
    """In intervals of ten seconds: of a ride that changes within one, the last row counts."""
    pushers, killed = Pushers(repository, start, tmp_path_factory.mktemp("push")), killed_at(*steps)
    state = None
    while state is None:
        with suppress(KilledError):
            state = pushers.push(100, burst=burst, step=killed, rides=RIDES)
    assert pushers.rows("trips") == VERSIONS
    assert state.counts["rides"] == {"rows": 6, "repeated": 2, "late": 3, "misfits": 0}


trips = st.lists(st.tuples(st.integers(1, 99), st.integers(1, 3), st.integers(0, 9), st.integers(1, 5)), max_size=9)


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(listed=trips)
def test_late_and_corrected_rows_are_versions_and_online_is_offline_at_every_batch(
    repository: Repository,
    start: Start,
    tmp_path_factory: pytest.TempPathFactory,
    listed: list[tuple[int, int, int, int]],
) -> None:
    """What the online store gave after a batch is what the final tables say of that moment."""
    # No two rides end at once.
    rides = sorted((max(at, 10 * tens + ride), ride, 10 * tens + ride, fare) for at, ride, tens, fare in listed)
    pushers = Pushers(repository, start, tmp_path_factory.mktemp("push"))
    view, served = online_view(repository.views["trips"]), list[tuple[datetime, float | None]]()

    def look(step: str) -> None:
        state = pushers.batches.state()
        if step == "acknowledged" and state:
            read = pushers.online.read([view], pa.table({"driver": [1]}), state.as_of)
            served.append((state.as_of, read["fares"][0].as_py()))

    pushers.push(99, step=look, rides=rides)
    times = pa.array([time for time, _ in served], MOMENTS)
    rows = pa.table({"driver": pa.array([1] * len(served), pa.int64()), "time": times})
    with connect() as connection:
        joined = offline_join(view, rows_of([pushers.batches.folder / "current" / "tables" / "trips"]))
        fares = asof_join(connection, rows, "time", [joined])["fares"].to_pylist()
    assert fares == [value for _, value in served]
    last = {ride: (ended, fare) for _, ride, ended, fare in rides}
    newest = {event: value for event, _, value in pushers.rows("trips") if value is not None}
    gone = {event for event, _, value in sorted(pushers.rows("trips"), key=lambda row: row[1]) if value is None}
    assert {event: newest[event] for event, _ in last.values()} == {
        event: sum(fare for ended, fare in last.values() if ended <= event) for event, _ in last.values()
    }
    assert newest.keys() - {event for event, _ in last.values()} <= gone


def test_a_topic_gives_the_same_versions_and_is_committed_behind_what_counts(pushers: Pushers) -> None:
    """Librdkafka's own brokers, and a pusher that dies after it wrote and before it commits."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0, "linger.ms": 0})
    servers = ",".join(f"{broker.host}:{broker.port}" for broker in producer.list_topics(timeout=10).brokers.values())
    for message, trip in zip(messages_of(RIDES), RIDES, strict=True):
        time = int(message.time.timestamp() * 1000)
        producer.produce("rides", message.payload, partition=trip[1] % 4, timestamp=time)
    assert producer.flush(20) == 0

    def streams(state: BatchState) -> dict[str, MessageStream]:
        # The brokers of the tests look up no times, so the messages begin where the tables end.
        after = {str(partition): (-1,) for partition in range(4)} | state.positions.get("rides", {})
        return {"rides": open_stream(f"kafka://{servers}?topic=rides", pushers.start.group, NOON, after)}

    def committed() -> int:
        consumer = Consumer({"bootstrap.servers": servers, "group.id": pushers.start.group})
        offsets = consumer.committed([TopicPartition("rides", partition) for partition in range(4)], timeout=10)
        consumer.close()
        return sum(max(0, place.offset) for place in offsets)

    with pytest.raises(KilledError):
        pushers.push_from(streams, ["rides"], 100, step=killed_at("committed"), wait=0.2)
    assert committed() == 0
    state = pushers.push_from(streams, ["rides"], 100, wait=0.2)
    assert state.counts["rides"]["rows"] == committed() == 6 and pushers.rows("trips") == VERSIONS
