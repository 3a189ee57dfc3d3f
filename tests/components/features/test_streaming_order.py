"""Micro-batches in order of arrival whatever the streams give when; watermarks; messages of Kafka."""

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.components.features.compute import compute_views, connect, open_tables, set_time
from gatehouse.components.features.repository import Repository
from gatehouse.components.features.sqlite_online import SqliteOnline
from gatehouse.components.features.streaming.arrivals import Arrival, Arrivals
from gatehouse.components.features.streaming.landing import Landing, State
from gatehouse.components.features.streaming.pusher import Pusher, push_streams
from gatehouse.components.features.streaming.start import Start
from gatehouse.components.features.streaming.stream import Event, EventStream, Position, open_stream
from gatehouse.components.features.streaming.watermark import Watermark
from gatehouse.errors import ConfigurationError
from tests.components.features.landing_order import KilledError, killed_at

BEGIN = datetime(2013, 1, 9, tzinfo=UTC)
Listed = list[tuple[str, int]]


class Kept:
    """A stream in memory: (partition, minute) in the order in which it gives them, `burst` at a time at most."""

    def __init__(self, listed: Listed, burst: int) -> None:
        self.left = [
            Event(partition, (place,), BEGIN + timedelta(minutes=minute), b"{}")
            for place, (partition, minute) in enumerate(listed)
        ]
        self.burst = burst

    def read(self, limit: int, wait: float) -> Sequence[Event]:
        count = min(limit, self.burst)
        given, self.left = self.left[:count], self.left[count:]
        return given

    @property
    def behind(self) -> frozenset[str]:
        return frozenset(event.partition for event in self.left)

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        pass

    def close(self) -> None:
        pass


def batches(streams: Mapping[str, EventStream], limit: int) -> Iterator[list[Arrival]]:
    arrivals = Arrivals(streams, BEGIN)
    while taken := arrivals.take(limit, 0.0):
        yield taken


messages = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=20)


@given(one=messages, other=messages, bursts=st.tuples(st.integers(1, 4), st.integers(1, 4)), limit=st.integers(1, 7))
def test_every_message_once_in_order_of_arrival_and_no_moment_divided(
    one: Listed, other: Listed, bursts: tuple[int, int], limit: int
) -> None:
    taken = list(batches({"one": Kept(one, bursts[0]), "other": Kept(other, bursts[1])}, limit))
    flat = [each for batch in taken for each in batch]
    assert len(flat) == len(set(flat)) == len(one) + len(other)
    assert [each.time for each in flat] == sorted(each.time for each in flat)
    for first, second in itertools.pairwise(taken):
        assert first[-1].time < second[0].time
    for table in ("one", "other"):
        for partition in "ab":
            places = [each.position for each in flat if (each.table, each.partition) == (table, partition)]
            assert places == sorted(places)


def test_a_row_older_than_the_watermark_is_late_and_does_not_move_it() -> None:
    hours = [BEGIN + timedelta(hours=hour) for hour in (5, 3, 2, 9, 6, 7)]
    mark = Watermark(None, timedelta(hours=2)).advanced([*hours, None])
    assert mark.late == 2 and mark.at == BEGIN + timedelta(hours=7)


def test_a_url_that_names_no_stream_is_refused() -> None:
    for url in ("redis://host:1/0", "kafka://host:1?stream=a", "amqp://host?topic=a"):
        with pytest.raises(ConfigurationError, match="expected redis://"):
            open_stream(url, "group", BEGIN, {})


@pytest.fixture(scope="module")
def cluster() -> tuple[Producer, str]:
    """Librdkafka's own brokers, which live as long as the producer; topics have four partitions."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0, "linger.ms": 0})
    brokers = producer.list_topics(timeout=10).brokers.values()
    return producer, ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


def test_a_topic_gives_the_rows_of_the_batch_and_commits_behind_what_counts(
    repository: Repository, raw_tables: dict[str, Path], cluster: tuple[Producer, str], tmp_path: Path
) -> None:
    """The weather, hour by hour, each origin in its partition; the pusher dies after it wrote and before it commits."""
    producer, servers = cluster
    weather = pq.read_table(raw_tables["weather"]).sort_by("time_hour")
    until = BEGIN + timedelta(days=1)
    # The brokers of the tests look up no times, so the messages begin where the tables end.
    for row in weather.to_pylist():
        known = row["time_hour"].astimezone(UTC) + timedelta(hours=1)
        if BEGIN < known <= until:
            partition = ("EWR", "JFK", "LGA").index(row["origin"])
            body = json.dumps(row, default=str).encode()
            producer.produce("weather", body, partition=partition, timestamp=int(known.timestamp() * 1000))
    assert producer.flush(20) == 0
    start = _weather_until(repository, raw_tables, BEGIN, tmp_path)
    online = SqliteOnline(tmp_path / "online.db", "flights")

    def streams(state: State) -> dict[str, EventStream]:
        after = state.positions.get("weather") or {str(partition): (-1,) for partition in range(4)}
        return {"weather": open_stream(f"kafka://{servers}?topic=weather", start.group, BEGIN, after)}

    def pusher(*steps: str) -> Pusher:
        step = killed_at(*steps)
        return Pusher(repository, start, Landing(tmp_path / "push"), online, ["weather"], ["origin_weather"], step)

    with pytest.raises(KilledError):
        push_streams(pusher("committed"), streams, limit=20, wait=1, until_idle=True)
    assert _committed(servers, start.group) == 0
    state = push_streams(pusher(), streams, limit=20, wait=1, until_idle=True)
    assert state.counts["weather"]["rows"] == _committed(servers, start.group) == 72
    assert state.as_of == until and state.counts["weather"]["late"] == 0
    with connect() as connection:
        open_tables(
            connection, {"pushed": [*Landing(tmp_path / "push").table(state.number, "origin_weather").values()]}
        )
        pushed = connection.sql("FROM raw.pushed ORDER BY ALL").to_arrow_table().to_pylist()
    assert pushed == _weather(repository, raw_tables, until).to_pylist()


def _committed(servers: str, group: str) -> int:
    """How many messages the group has committed, all partitions together."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    found = consumer.committed([TopicPartition("weather", partition) for partition in range(4)], timeout=10)
    consumer.close()
    return sum(max(0, each.offset) for each in found)


def _weather(repository: Repository, raw_tables: Mapping[str, Path], until: datetime) -> pa.Table:
    with connect() as connection:
        open_tables(connection, {"weather": [raw_tables["weather"]]}, "source")
        hours = f"time_hour + INTERVAL 1 HOUR <= TIMESTAMPTZ '{until.isoformat()}'"
        connection.execute(f"CREATE VIEW raw.weather AS SELECT * FROM source.weather WHERE {hours}")
        set_time(connection, "as_of", until)
        return compute_views(connection, repository, ["origin_weather"])["origin_weather"]


def _weather_until(repository: Repository, raw_tables: Mapping[str, Path], until: datetime, folder: Path) -> Start:
    """The tables as they stood, as a pusher starts from them."""
    raw = pq.read_table(raw_tables["weather"])
    hours = pa.scalar(until - timedelta(hours=1), pa.timestamp("us", "UTC"))
    pq.write_table(raw.filter(pc.less_equal(raw["time_hour"], hours)), folder / "weather.parquet")
    table = folder / "known-2013-01.parquet"
    pq.write_table(_weather(repository, raw_tables, until), table)
    reference = f"feature-tables/flights/sha256-{'0' * 64}"
    return Start(reference, until, {"weather": [folder / "weather.parquet"]}, {"origin_weather": {table.name: table}})
