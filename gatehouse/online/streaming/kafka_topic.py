"""Messages of all partitions of a Kafka topic; the group's committed offsets show what was acknowledged."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, TopicPartition

from gatehouse.data.messages.clients import (
    kafka_consumer,
    kafka_partitions,
    kafka_settings,
    moment_of,
    unreachable,
)
from gatehouse.errors import SourceError
from gatehouse.online.streaming.stream import Message, Position, milliseconds

SETTINGS = "GATEHOUSE_KAFKA_SETTINGS"
_SILENCE_SECONDS = 30.0
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaMessages:
    """A `MessageStream`. Partitions are assigned, not subscribed to: one pusher reads all of them."""

    def __init__(self, servers: str, topic: str, group: str, since: datetime, after: Mapping[str, Position]) -> None:
        self._topic, self._servers = topic, servers
        settings = kafka_settings(SETTINGS if os.environ.get(SETTINGS) else "")
        self._secret = bool(settings)
        try:
            self._consumer = kafka_consumer(servers, settings, group)
            partitions = kafka_partitions(self._consumer, topic, _SILENCE_SECONDS)
            assigned = []
            for number in partitions:
                if str(number) in after:
                    offset = after[str(number)][0] + 1
                else:
                    # The end is asked first: a message that arrives between the two requests is after this end, and so
                    # is read. Without a message at `since` or later, reading begins at the end.
                    partition = TopicPartition(topic, number, milliseconds(since))
                    _, end = self._consumer.get_watermark_offsets(partition, timeout=_SILENCE_SECONDS)
                    first = self._consumer.offsets_for_times([partition], timeout=_SILENCE_SECONDS)[0].offset
                    offset = first if first >= 0 else end
                assigned.append(TopicPartition(topic, number, offset))
            self._consumer.assign(assigned)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        self._partitions = frozenset(map(str, partitions))
        self._ended: set[str] = set()
        self._silent = dict.fromkeys(self._partitions, 0.0)

    @property
    def behind(self) -> frozenset[str]:
        """As `MessageStream.behind`."""
        return self._partitions - self._ended

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """As `MessageStream.read`. A partition that is silent for 30 seconds before its end is an error too."""
        messages: list[Message] = []
        started, heard = time.monotonic(), set[str]()
        for record in self._consumer.consume(limit, timeout=wait or 0.05):
            error, partition = record.error(), str(record.partition())
            heard.add(partition)
            if error is None:
                self._ended.discard(partition)
                number, offset, value = record.partition(), record.offset(), record.value()
                kind, sent = record.timestamp()
                if kind == TIMESTAMP_NOT_AVAILABLE or number is None or offset is None:
                    raise SourceError(
                        f"The message {offset} of partition {partition} has no timestamp, so it is unknown since when "
                        "its features are known. Configure the topic to set timestamps (message.timestamp.type)."
                    )
                payload = value.encode() if isinstance(value, str) else value
                messages.append(Message(partition, (offset,), moment_of(sent), payload))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            elif error.code() in _LOST:
                raise SourceError(
                    f"The topic {self._topic} no longer holds messages of partition {partition} that were never read: "
                    "they expired. Retain them longer, and push from newer feature tables."
                )
            elif error.fatal() or not error.retriable():
                raise self._unreachable(error)
        passed = time.monotonic() - started
        for partition in self._partitions:
            quiet = partition in heard or partition in self._ended
            self._silent[partition] = 0.0 if quiet else self._silent[partition] + passed
            if self._silent[partition] > _SILENCE_SECONDS:
                raise self._unreachable(f"partition {partition} is silent for {_SILENCE_SECONDS:g} s")
        return messages

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """As `MessageStream.acknowledge`. Raises SourceError if the cluster cannot be reached."""
        offsets = [TopicPartition(self._topic, int(name), place[0] + 1) for name, place in positions.items()]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def close(self) -> None:
        """As `MessageStream.close`."""
        self._consumer.close()

    def _unreachable(self, error: KafkaError | str) -> SourceError:
        return unreachable(f"The topic {self._topic} at {self._servers}", error, self._secret)
