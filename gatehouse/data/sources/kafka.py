"""Bounded reads of Kafka topics: from the offsets of the earlier snapshot to the high watermarks at the first look."""

import threading
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from gatehouse.data.messages.clients import (
    kafka_consumer,
    kafka_partitions,
    kafka_settings,
    moment_of,
    unreachable,
)
from gatehouse.data.snapshot.spec import SourceBase
from gatehouse.data.sources.base import EarlierPart, Part, Raw
from gatehouse.data.sources.messages import Message, StreamReader, StreamTable
from gatehouse.errors import SourceError
from gatehouse.runtime.redaction import error_text
from gatehouse.store.identity import operational

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from confluent_kafka import Message as KafkaMessage


class KafkaTable(StreamTable):
    """One topic whose values are JSON objects. Its envelope gives `partition`, `offset`, `key` and `time`.

    `time` is null where a message has none.
    """

    topic: str = Field(min_length=1, description="Name of the topic.")

    @model_validator(mode="after")
    def _envelope_is_of_kafka(self) -> "KafkaTable":
        if not set(self.envelope.values()) <= {"partition", "offset", "key", "time"}:
            raise ValueError("envelope: a topic gives partition, offset, key and time")
        return self


class KafkaSource(SourceBase):
    """Topics of a cluster that speaks Kafka's protocol. No offsets are committed there."""

    forgets: ClassVar[bool] = True
    kind: Literal["kafka"] = "kafka"
    servers: str = Field(min_length=1, description="Bootstrap servers, host:port[,host:port…].")
    settings_env: str = Field(
        "",
        description="Environment variable with a JSON object of librdkafka settings, e.g. security.protocol, sasl.*.",
    )
    messages_per_part: int = Field(
        50_000,
        ge=1,
        description="Parts end at every multiple of this offset; at most this many messages are in memory at once.",
    )
    timeout_seconds: float = operational(30, gt=0, description="How long the cluster may stay silent.")
    tables: dict[str, KafkaTable] = Field(min_length=1)


class KafkaReader(StreamReader):
    """Topics, each partition up to its high watermark at the first look; of transactions, what was committed."""

    def __init__(self, spec: KafkaSource) -> None:
        super().__init__(spec.name, spec.tables, spec.time_zone)
        self._spec = spec
        self._settings = kafka_settings(spec.settings_env)
        self._opened: Consumer | None = None
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}
        self._lock = threading.Lock()
        self._at: tuple[str, int, int] | None = None

    def state(self) -> Mapping[str, Any]:
        """By table: the topic, the offset after the newest message of each partition, and its declaration."""
        ends = {name: {str(part): high for part, (_, high) in self._watermarks(name).items()} for name in self._tables}
        return {name: self._declaration(name) | {"to": ends[name]} for name in self._tables}

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Partition after partition, runs of offsets that end at the multiples of `messages_per_part`.

        The full runs of `earlier_parts` are yielded without being read. The short last one of a partition is read again
        together with what came after it; if the topic no longer holds it whole, it stays as it is and a new run
        begins after it. A run has fewer messages than offsets if the topic was compacted or has transactions.
        """
        size = self._spec.messages_per_part
        for partition, (low, high) in sorted(self._watermarks(table).items()):
            of_partition = [part for part in earlier_parts if part.position.get("partition") == partition]
            start = of_partition[0].position["from"] if of_partition else low
            kept = self._unchanged(table, of_partition)
            last = kept[-1].position if kept else {}
            if kept and last["to"] % size and last["to"] < high and last["from"] >= low:
                kept.pop()
            for part in kept:
                yield Part(part.fingerprint, partial(self._rows, table, part.position), part.position)
                start = part.position["to"]
            if start > high:
                raise SourceError(
                    f"Table {table}: partition {partition} was read up to the offset {start}, but ends at {high} now: "
                    "the topic was deleted and created again. Give the source another name to start over with it."
                )
            if start < min(low, high):
                raise SourceError(
                    f"Table {table}: the offsets {start} to {low - 1} of partition {partition} expired before they "
                    "were read. Read more often or retain messages longer; to continue without them, give the source "
                    "another name."
                )
            while start < high:
                stop = min(high, (start // size + 1) * size)
                position = {"partition": partition, "from": start, "to": stop}
                yield Part(self._fingerprint(table, position), partial(self._rows, table, position), position)
                start = stop

    def _watermarks(self, table: str) -> dict[int, tuple[int, int]]:
        """First offset and the one after the last, by partition, at the first look."""
        from confluent_kafka import KafkaException, TopicPartition

        if table not in self._ends:
            topic, timeout = self._spec.tables[table].topic, self._spec.timeout_seconds
            try:
                consumer = self._consumer()
                self._ends[table] = {
                    partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=timeout)
                    for partition in kafka_partitions(consumer, topic, timeout)
                }
            except KafkaException as error:
                raise self._unreachable(table, error.args[0]) from None
        return self._ends[table]

    def _rows(self, table: str, position: Mapping[str, Any]) -> Raw:
        with self._lock:
            messages = self._consume(table, position["partition"], position["from"], position["to"])
        return self._typed(table, map(_message, messages))

    def _consume(self, table: str, partition: int, start: int, stop: int) -> "list[KafkaMessage]":
        """The messages of a partition with offsets from `start` to `stop`, excluded."""
        from confluent_kafka import KafkaError, TopicPartition

        consumer, topic = self._consumer(), self._spec.tables[table].topic
        if self._at != (topic, partition, start):
            consumer.assign([TopicPartition(topic, partition, start)])
        self._at = None
        messages: list[KafkaMessage] = []
        heard, trouble = time.monotonic(), ""
        while time.monotonic() - heard < self._spec.timeout_seconds:
            message = consumer.poll(0.5)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            if error is None and offset is not None:
                heard = time.monotonic()
                if offset < stop:
                    messages.append(message)
                if offset >= stop - 1:
                    # A message beyond the run came out of the queue: the next run has to look for it again.
                    self._at = (topic, partition, stop) if offset == stop - 1 else None
                    return messages
            elif error is not None and error.code() == KafkaError._PARTITION_EOF:
                if offset is not None and offset >= stop:
                    # What follows the last message is markers of transactions, or was compacted.
                    return messages
            elif error is not None and error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                raise SourceError(
                    f"Table {table}: partition {partition} no longer holds the offsets from {start} to {stop - 1}: "
                    "they expired. Rows of an earlier snapshot are in that snapshot alone."
                )
            elif error is not None:
                # The client goes on by itself: it reconnects until the time is over.
                trouble = f": {error_text(error, bool(self._settings))}"
        silent = f"silent for {self._spec.timeout_seconds} s, partition {partition}, offset {start}{trouble}"
        raise self._unreachable(table, silent)

    def _consumer(self) -> "Consumer":
        if self._opened is None:
            self._opened = kafka_consumer(self._spec.servers, self._settings, "gatehouse")
        return self._opened

    def _unreachable(self, table: str, error: object) -> SourceError:
        return unreachable(f"Source {self._spec.name}, table {table}: the cluster", error, bool(self._settings))


def _message(message: "KafkaMessage") -> Message:
    from confluent_kafka import TIMESTAMP_NOT_AVAILABLE

    key, (kind, milliseconds) = message.key(), message.timestamp()
    envelope = {
        "partition": message.partition(),
        "offset": message.offset(),
        "key": key.decode("utf-8", "backslashreplace") if isinstance(key, bytes) else key,
        "time": None if kind == TIMESTAMP_NOT_AVAILABLE else moment_of(milliseconds),
    }
    value = message.value()
    payload = value.encode() if isinstance(value, str) else value
    return Message(f"partition {message.partition()}, offset {message.offset()}".__str__, payload, envelope)
