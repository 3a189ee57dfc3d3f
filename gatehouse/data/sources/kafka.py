"""Topics of Kafka as tables: records with JSON values, each partition cut into parts by its offsets."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, model_validator

from gatehouse.configuration.strict import Duration
from gatehouse.data.snapshot.spec import ColumnType, SourceBase, TableSpec
from gatehouse.data.sources.base import EarlierPart, Opened, Part, Raw, without_password
from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import error_text
from gatehouse.store.canonical import digest_of
from gatehouse.store.identity import operational

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

RECORD = {
    "kafka_partition": ColumnType.int64,
    "kafka_offset": ColumnType.int64,
    "kafka_timestamp": ColumnType.timestamp,
    "kafka_key": ColumnType.string,
}
"""Columns of the record itself, for tables that declare them."""
_BATCH = 10_000


class KafkaTable(TableSpec):
    """One topic. Its rows stand in the order of partitions, then of offsets."""

    topic: str = Field(min_length=1, description="The topic; its values are JSON objects.")
    lost: Literal["fail", "accept"] = Field(
        "fail", description="Kafka deleted records before a snapshot took them; accept to go on without them."
    )

    @model_validator(mode="after")
    def _fits_a_topic(self) -> "KafkaTable":
        if self.order_by or self.sort_on_ingest:
            raise ValueError("order_by: rows of a topic stand in the order of partitions and offsets; leave it out")
        for column, kind in RECORD.items():
            if self.columns.get(column, kind) is not kind or (column in self.columns and column in self.times):
                raise ValueError(f"{column}: it comes from the record; expected {kind} without times")
        return self


class KafkaSource(SourceBase):
    """Topics of Kafka, up to the newest committed record at the moment of the look."""

    kind: Literal["kafka"] = Field("kafka", description="What the source is.")
    servers: str = operational(min_length=1, description="Addresses of brokers, as kafka-1:9092,kafka-2:9092.")
    options: dict[str, bool | int | float | str] = operational(
        {}, description="Further settings of librdkafka without secrets, as security.protocol: SASL_SSL."
    )
    options_env: dict[str, str] = operational(
        {}, description="Environment variables that hold settings, as sasl.password: KAFKA_PASSWORD."
    )
    rows_per_part: int = Field(131_072, ge=1, description="Offsets that are read together and stored as one part.")
    timeout: Duration = operational(
        timedelta(seconds=30), gt=timedelta(0), description="How long a broker may be silent before the read ends."
    )
    tables: dict[str, KafkaTable] = Field(min_length=1, description="The raw tables, by name.")

    @model_validator(mode="after")
    def _without_passwords(self) -> "KafkaSource":
        for name, value in self.options.items():
            if name in self.options_env or re.search("password|secret|ssl.key.pem", name):
                raise ValueError(f"options: expected {name} in options_env alone, as an environment variable")
            without_password(str(value))
        return self

    def settings(self) -> dict[str, Any]:
        """The settings of a consumer. Raises DeclarationError if an environment variable is not set."""
        if unset := sorted(name for name in self.options_env.values() if not os.environ.get(name)):
            raise DeclarationError(
                f"The environment variable {unset[0]} is not set: it holds a setting of the source {self.name}. Set "
                "it, or correct source.options_env."
            )
        fixed = {
            "bootstrap.servers": self.servers,
            "group.id": f"gatehouse-{self.name}",  # It is required, and joins no group: partitions are assigned.
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "allow.auto.create.topics": False,
            "log_level": 3,
        }
        secret = {name: os.environ[variable] for name, variable in self.options_env.items()}
        return {**self.options, **secret, **fixed}


@dataclass(frozen=True)
class Span:
    """Offsets `start` to `stop` (exclusive) of one partition."""

    partition: int
    start: int
    stop: int


def spans_of(partition: int, low: int, high: int, size: int, earlier: tuple[Span, ...]) -> Iterator[Span]:
    """Spans that cover the offsets `low` to `high`, cut at multiples of `size`, after those of `earlier` that stay.

    An earlier span stays if it is full, or if Kafka no longer holds its first records. So an append changes the last
    span alone, and what a snapshot holds outlives its records. Earlier spans after `high` do not stay.
    """
    at = low
    for span in earlier:
        if span.stop > high or (span.stop % size and span.start >= low):
            break
        yield span
        at = max(low, span.stop)
    while at < high:
        stop = min((at // size + 1) * size, high)
        yield Span(partition, at, stop)
        at = stop


class KafkaReader(Opened):
    """Topics up to the offsets that the first look found."""

    def __init__(self, spec: KafkaSource) -> None:
        self._spec = spec
        self._opened: Consumer | None = None
        self._ends: dict[str, dict[int, tuple[int, int]]] = {}

    def state(self) -> Mapping[str, Any]:
        """By table: the topic, and by partition the first offset and that after the last."""
        return {
            name: {
                "topic": table.topic,
                "columns": dict(table.columns),
                "offsets": {str(partition): list(ends) for partition, ends in self.ends(name).items()},
            }
            for name, table in self._spec.tables.items()
        }

    def ends(self, table: str) -> dict[int, tuple[int, int]]:
        """By partition, the first offset of a table's topic and that after its last committed record."""
        if table in self._ends:
            return self._ends[table]
        topic, patience, consumer = self._spec.tables[table].topic, self._spec.timeout.total_seconds(), self._consumer()
        from confluent_kafka import KafkaException, TopicPartition

        try:
            described = consumer.list_topics(topic, timeout=patience).topics[topic]
            if described.error:
                raise SourceError(
                    f"Source {self._spec.name}, table {table}: expected the topic {topic} at {self._spec.servers}, "
                    f"found {described.error.str()}. Correct source.tables.{table}.topic, or allow this client to "
                    "read it."
                )
            self._ends[table] = {
                partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=patience)
                for partition in sorted(described.partitions)
            }
        except KafkaException as error:
            raise self._failed(table, error) from None
        return self._ends[table]

    def parts(self, table: str, earlier_parts: tuple[EarlierPart, ...] = ()) -> Iterator[Part]:
        """Spans of offsets, partition by partition; the earlier ones that stay are not read again.

        Raises SourceError if records are gone that no earlier snapshot holds, or the topic was made anew.
        """
        spec = self._spec.tables[table]
        if earlier_parts and earlier_parts[0].position["topic"] != spec.topic:
            earlier_parts = ()
        for partition, (low, high) in self.ends(table).items():
            known = {
                Span(partition, place["start"], place["stop"]): part
                for part in earlier_parts
                if (place := part.position)["partition"] == partition
            }
            reached = max((span.stop for span in known), default=None)
            if reached is not None and reached < low and spec.lost == "fail":
                raise SourceError(
                    f"Table {table}: expected the records of {spec.topic}, partition {partition}, from offset "
                    f"{reached} on, found that Kafka holds those from {low} on. Take snapshots more often than the "
                    f"topic is kept, or declare lost: accept to do without these {low - reached:,} offsets."
                )
            if reached is not None and high < reached:
                raise self._anew(table, partition, f"it ends at offset {high}, and {reached} was read before")
            firsts = [(*part.position["first"], span) for span, part in known.items() if part.position["first"]]
            for offset, moment, span in [first for first in firsts if first[0] >= low][-1:]:
                again = self._records(table, replace(span, start=offset, stop=offset + 1))
                if [record.timestamp()[1] for record in again] != [moment]:
                    raise self._anew(table, partition, f"the record at offset {offset} is another than before")
            for span in spans_of(partition, low, high, self._spec.rows_per_part, tuple(known)):
                if span in known:
                    yield Part(known[span].fingerprint, partial(self._again, table, span), known[span].position)
                    continue
                records = self._records(table, span)
                # Offset and time of the first record show whether the topic was made anew since.
                first = [records[0].offset(), records[0].timestamp()[1]] if records else []
                position = {"topic": spec.topic, "partition": partition, "start": span.start, "stop": span.stop}
                fingerprint = digest_of([position, first, dict(spec.columns), self._spec.time_zone])
                yield Part(fingerprint, partial(self._rows, table, records), position | {"first": first})

    def _anew(self, table: str, partition: int, why: str) -> SourceError:
        return SourceError(
            f"Table {table}: expected that the topic {self._spec.tables[table].topic} only grows, found that it was "
            f"made anew: in partition {partition} {why}. Give the source another name, so that its history begins anew."
        )

    def _again(self, table: str, span: Span) -> Raw:
        with KafkaReader(self._spec) as other:
            return other._rows(table, other._records(table, span))

    def _records(self, table: str, span: Span) -> "list[Message]":
        """The committed records of a span; fewer than its offsets where transactions ended or a topic was compacted."""
        from confluent_kafka import KafkaError, KafkaException, TopicPartition

        topic, patience, records = self._spec.tables[table].topic, self._spec.timeout.total_seconds(), list["Message"]()
        consumer, heard = self._consumer(), time.monotonic()
        try:
            consumer.assign([TopicPartition(topic, span.partition, span.start)])
            while True:
                messages = consumer.consume(min(_BATCH, span.stop - span.start), timeout=min(patience, 1.0))
                for message in messages:
                    if (problem := message.error()) and problem.code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(problem)
                    if problem or (message.offset() or 0) >= span.stop:
                        return records
                    records.append(message)
                    if message.offset() == span.stop - 1:
                        return records
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > patience:
                    raise SourceError(
                        f"Source {self._spec.name}, table {table}: the brokers gave no record of {topic}, partition "
                        f"{span.partition}, for {patience:g} s. Nothing was published; run again when they answer."
                    )
        except KafkaException as error:
            raise self._failed(table, error) from None
        finally:
            consumer.unassign()

    def _rows(self, table: str, records: "list[Message]") -> Raw:
        from gatehouse.data.sources.json_rows import read_json_lines

        spec = self._spec.tables[table]
        readers = {name: read for name, read in _READERS.items() if name in spec.columns}

        def place(number: int) -> str:
            record = records[number]
            return f"{spec.topic}, partition {record.partition()}, offset {record.offset()}"

        lines = [record.value() or b"null" for record in records]  # A tombstone has no value.
        more = [{name: read(record) for name, read in readers.items()} for record in records]
        return read_json_lines(
            lines, spec, name=table, place=place, time_zone=self._spec.time_zone, values_of_lines=more
        )

    def _consumer(self) -> "Consumer":
        if self._opened is None:
            try:
                from confluent_kafka import Consumer, KafkaException
            except ModuleNotFoundError:
                raise DeclarationError(
                    f"Source {self._spec.name}: kind kafka needs the package confluent-kafka, which is not installed. "
                    "Install gatehouse[kafka]."
                ) from None
            try:
                self._opened = Consumer(self._spec.settings())
            except (KafkaException, ValueError, TypeError) as error:
                raise DeclarationError(
                    f"Source {self._spec.name}: librdkafka refuses its settings: {error_text(error)}. Correct "
                    "source.options."
                ) from None
        return self._opened

    def _failed(self, table: str, error: Exception) -> SourceError:
        return SourceError(
            f"Source {self._spec.name}, table {table}: Kafka at {self._spec.servers} ended the read: "
            f"{error_text(error)}. Check the address, that the brokers run, and what this client may read. Nothing was "
            "published."
        )


def _time(record: "Message") -> str | None:
    milliseconds = record.timestamp()[1]
    return None if milliseconds < 0 else datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


def _key(record: "Message") -> str | None:
    key = record.key()
    return None if key is None else bytes(key).decode("utf-8", "backslashreplace")


_READERS: dict[str, Callable[["Message"], Any]] = {
    "kafka_partition": lambda record: record.partition(),
    "kafka_offset": lambda record: record.offset(),
    "kafka_timestamp": _time,
    "kafka_key": _key,
}
