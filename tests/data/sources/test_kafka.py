"""Bounded reads of Kafka topics, from librdkafka's own cluster of in-process brokers."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from gatehouse.data.sources.base import EarlierPart
from gatehouse.data.sources.kafka import KafkaReader, KafkaSource
from gatehouse.errors import DeclarationError, SourceError
from tests.data.sources.reading import ids, take

COLUMNS = {"id": "int64", "item": "string"}


class Cluster:
    """A producer, and the brokers that live as long as it does."""

    def __init__(self) -> None:
        self.producer: Producer | None = Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "none", "log_level": 0, "linger.ms": 0}
        )
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.servers = ",".join(f"{broker.host}:{broker.port}" for broker in brokers)

    def send(self, topic: str, partition: int, values: list[Any], **message: Any) -> None:
        assert self.producer is not None
        for value in values:
            encoded = value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self.producer.produce(topic, partition=partition, value=encoded, **message)
            self.producer.poll(0)
        assert self.producer.flush(20) == 0

    def stop(self) -> None:
        self.producer = None


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Brokers for the tests of this file; topics have four partitions."""
    running = Cluster()
    yield running
    running.stop()


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"orders-{uuid.uuid4().hex[:8]}"


def source(cluster: Cluster, topic: str, size: int = 10, timeout: float = 10, **table: Any) -> KafkaSource:
    return KafkaSource.model_validate(
        {
            "name": "events",
            "servers": cluster.servers,
            "messages_per_part": size,
            "timeout_seconds": timeout,
            "tables": {"orders": {"topic": topic, "columns": COLUMNS} | table},
        }
    )


def orders(start: int, stop: int) -> list[dict[str, Any]]:
    return [{"id": i, "item": f"té {i}"} for i in range(start, stop)]


def test_messages_become_typed_rows_partition_after_partition(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, 2, orders(100, 103))
    cluster.send(topic, 0, orders(0, 25))
    state, parts, rows = take(source(cluster, topic))
    assert [part.rows for part in parts] == [10, 10, 5, 3]
    assert ids(rows) == [*range(25), *range(100, 103)]
    assert state["orders"]["to"] == {"0": 25, "1": 0, "2": 3, "3": 0}
    assert parts[1].position == {"partition": 0, "from": 10, "to": 20}
    assert cluster.servers not in json.dumps(state)


def test_incremental_snapshots_hold_every_message_once_and_keep_their_full_parts(cluster: Cluster, topic: str) -> None:
    earlier_parts: tuple[EarlierPart, ...] = ()
    rows: dict[str, pa.Table] = {}
    for start, stop in ((0, 3), (3, 10), (10, 10), (10, 36), (36, 41)):
        cluster.send(topic, 0, orders(start, stop))
        cluster.send(topic, 1, orders(1000 + start, 1000 + stop))
        before = earlier_parts
        _, earlier_parts, rows = take(source(cluster, topic), earlier_parts, rows)
        assert ids(rows) == [*range(stop), *range(1000, 1000 + stop)]
        assert {part for part in map(repr, before) if "rows=10" in part} <= set(map(repr, earlier_parts))
    assert take(source(cluster, topic))[1] == earlier_parts


def test_a_reader_killed_between_read_and_publish_loses_and_doubles_nothing(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, 0, orders(0, 15))
    _, earlier_parts, rows = take(source(cluster, topic))
    cluster.send(topic, 0, orders(15, 32))
    program = (
        "import os, signal, sys\n"
        "from gatehouse.data.sources.kafka import KafkaReader, KafkaSource, _message\n"
        "reader = KafkaReader(KafkaSource.model_validate_json(sys.argv[1]))\n"
        "assert sum(part.read().table.num_rows for part in reader.parts('orders')) == 32\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    spec = source(cluster, topic).model_dump_json()
    assert subprocess.run([sys.executable, "-c", program, spec], check=False).returncode == -9
    assert ids(take(source(cluster, topic), earlier_parts, rows)[2]) == list(range(32))


def test_messages_that_expired_before_they_were_read_are_a_clear_error(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, 0, orders(0, 15))
    _, earlier_parts, rows = take(source(cluster, topic))
    # The brokers keep 5 MB a partition.
    cluster.send(topic, 0, [{"id": 99, "item": "x" * 500_000}] * 16)
    with pytest.raises(SourceError, match=r"the offsets 15 to \d+ of partition 0 expired before they were read"):
        take(source(cluster, topic), earlier_parts, rows)
    state, fresh, _ = take(source(cluster, topic))
    assert state["orders"]["to"]["0"] == 31 and fresh[0].position["from"] > 15


class Script:
    """A consumer that gives prepared messages; librdkafka's own brokers neither compact nor write markers."""

    def __init__(self, *offsets: int, end: int) -> None:
        self._left = [Scripted(offset) for offset in offsets] + [Scripted(end, KafkaError(KafkaError._PARTITION_EOF))]

    def assign(self, partitions: list[Any]) -> None:
        start = partitions[0].offset
        self._left = [message for message in self._left if message.offset() >= start]

    def poll(self, _timeout: float) -> Any:
        return self._left.pop(0)

    def close(self) -> None:
        """Nothing is open."""


class Scripted:
    """One of its messages."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset, self._error = offset, error

    def offset(self) -> int:
        return self._offset

    def error(self) -> KafkaError | None:
        return self._error


@pytest.mark.parametrize(
    ("offsets", "end", "expected"),
    [
        ([0, 3, 9, 10], 11, [0, 3, 9]),  # compacted within
        ([0, 3, 12], 13, [0, 3]),  # compacted over the end of the run
        ([0, 3], 10, [0, 3]),  # markers of transactions up to the end of the topic
        ([], 10, []),
    ],
)
def test_gaps_in_the_offsets_end_a_run_where_it_ends(
    cluster: Cluster, offsets: list[int], end: int, expected: list[int]
) -> None:
    reader = KafkaReader(source(cluster, "orders", timeout=1))
    reader._opened = Script(*offsets, end=end)  # type: ignore[assignment]
    assert [message.offset() for message in reader._consume("orders", 0, 0, 10)] == expected


def test_messages_that_do_not_fit_are_set_aside_with_their_reason(cluster: Cluster, topic: str) -> None:
    values = [
        {"id": 1},
        b"{",
        None,
        b"[1]",
        {"id": 1.5},
        {"id": True},
        {"id": 2**63},
        {"id": "5"},
        b'{"id": 1, "id": 2}',
        b'{"id": NaN}',
        b'{"item": "\\ud800"}',
        b"\xff",
        {"id": None, "item": "ok", "more": [1]},
    ]
    cluster.send(topic, 0, values)
    with KafkaReader(source(cluster, topic, size=100)) as reader:
        [part] = reader.parts("orders")
        raw = part.read()
    assert raw.table.to_pylist() == [{"id": 1, "item": None}, {"id": None, "item": "ok"}]
    assert raw.rejected is not None
    assert raw.rejected["place"].to_pylist() == [f"partition 0, offset {offset}" for offset in range(1, 12)]
    columns = ["", "", "", "id", "id", "id", "id", "", "", "item", ""]
    assert raw.rejected["column"].to_pylist() == columns
    assert all(raw.rejected["reason"].to_pylist()) and raw.rejected["observed"][6].as_py() == "'5'"


def test_the_envelope_becomes_columns(cluster: Cluster, topic: str) -> None:
    cluster.send(topic, 3, [{"id": 1}], key="é", timestamp=1_700_000_000_123)
    columns = {"id": "int64", "p": "int64", "o": "int64", "k": "string", "sent": "timestamp"}
    envelope = {"p": "partition", "o": "offset", "k": "key", "sent": "time"}
    table = take(source(cluster, topic, columns=columns, envelope=envelope))[2].popitem()[1]
    sent = datetime(2023, 11, 14, 22, 13, 20, 123000, UTC)
    assert table.to_pylist() == [{"id": 1, "p": 3, "o": 0, "k": "é", "sent": sent}]


def test_a_cluster_that_goes_away_ends_the_read_with_a_clear_error() -> None:
    cluster = Cluster()
    cluster.send("orders", 0, orders(0, 15))
    with KafkaReader(source(cluster, "orders", timeout=3)) as reader:
        parts = list(reader.parts("orders"))
        cluster.stop()
        with pytest.raises(SourceError, match="Source events, table orders: the cluster cannot be read: silent for 3"):
            parts[1].read()
    with (
        KafkaReader(source(cluster, "orders", timeout=1)) as reader,
        pytest.raises(SourceError, match="the cluster cannot be read"),
    ):
        reader.state()


def test_settings_come_from_the_environment(cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body = source(cluster, topic).model_dump() | {"settings_env": "EVENTS_SETTINGS"}
    with pytest.raises(DeclarationError, match="EVENTS_SETTINGS"):
        KafkaReader(KafkaSource.model_validate(body))
    monkeypatch.setenv("EVENTS_SETTINGS", "s3cr3t")
    with pytest.raises(DeclarationError, match="expected a JSON object") as caught:
        KafkaReader(KafkaSource.model_validate(body))
    assert "s3cr3t" not in str(caught.value)
    cluster.send(topic, 0, orders(0, 3))
    monkeypatch.setenv("EVENTS_SETTINGS", '{"client.id": "reader"}')
    assert ids(take(KafkaSource.model_validate(body))[2]) == [0, 1, 2]
