"""Messages of all partitions of a Kafka topic; the group's committed offsets show what was acknowledged."""

import json
import logging
import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from gatehouse.errors import DeclarationError, SourceError
from gatehouse.online.streaming.stream import Message, Position, milliseconds, moment_of
from gatehouse.runtime.redaction import said

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

logger = logging.getLogger(__name__)

SETTINGS = "GATEHOUSE_KAFKA_SETTINGS"
_SILENCE_SECONDS = 30.0
_LOST = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)


class KafkaMessages:
    """A `MessageStream`. Partitions are assigned, not subscribed to: one pusher reads all of them."""

    def __init__(self, servers: str, topic: str, group: str, since: datetime, after: Mapping[str, Position]) -> None:
        self._topic, self._servers = topic, servers
        given = _settings()
        self._secret = bool(given)
        settings = {
            "bootstrap.servers": servers,
            **given,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
        }
        try:
            self._consumer = Consumer(settings, logger=logger)
            starts = self._starts(since, after)
            self._consumer.assign(starts)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None
        self._partitions = frozenset(str(each.partition) for each in starts)
        self._ended: set[str] = set()
        self._silent = dict.fromkeys(self._partitions, 0.0)

    @property
    def behind(self) -> frozenset[str]:
        """As `MessageStream.behind`."""
        return self._partitions - self._ended

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """As `MessageStream.read`.

        Raises:
            SourceError: if the cluster cannot be reached, a partition is silent, or messages that were never read are
                gone.
        """
        messages: list[Message] = []
        started, heard = time.monotonic(), set[str]()
        for found in self._consumer.consume(limit, timeout=wait if wait else 0.05):
            error, partition = found.error(), str(found.partition())
            heard.add(partition)
            if error is None:
                self._ended.discard(partition)
                messages.append(_message(found))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(partition)
            elif error.code() in _LOST:
                raise SourceError(
                    f"The topic {self._topic} no longer holds messages of partition {partition} that were never read: "
                    "they expired. Retain them longer; to go on without them, push from newer feature tables."
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
        """As `MessageStream.acknowledge`.

        Raises:
            SourceError: if the cluster cannot be reached.
        """
        offsets = [TopicPartition(self._topic, int(name), place[0] + 1) for name, place in positions.items()]
        try:
            if offsets:
                self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            raise self._unreachable(error.args[0]) from None

    def close(self) -> None:
        """As `MessageStream.close`."""
        self._consumer.close()

    def _starts(self, since: datetime, after: Mapping[str, Position]) -> list[TopicPartition]:
        """The first offset to read of each partition: after the last message read, else from `since` on."""
        found = self._consumer.list_topics(self._topic, timeout=_SILENCE_SECONDS).topics[self._topic]
        if found.error is not None or not found.partitions:
            raise DeclarationError(f"The cluster at {self._servers} has no topic {self._topic!r}: {found.error}.")
        return [
            TopicPartition(
                self._topic,
                each,
                after[str(each)][0] + 1 if str(each) in after else self._offset_from(each, since),
            )
            for each in sorted(found.partitions)
        ]

    def _offset_from(self, partition: int, since: datetime) -> int:
        """The offset of the first message at `since` or later; the end of the partition if there is none."""
        place = TopicPartition(self._topic, partition)
        # The end is asked first: a message that arrives between the two requests is after this end, and so is read.
        low, end = self._consumer.get_watermark_offsets(place, timeout=_SILENCE_SECONDS)
        wanted = TopicPartition(self._topic, partition, milliseconds(since))
        found = self._consumer.offsets_for_times([wanted], timeout=_SILENCE_SECONDS)[0]
        offset = int(found.offset if found.offset >= 0 else end)
        if offset == low > 0:
            logger.warning(
                "Partition %d of the topic %s begins with offset %d, and the feature tables end at %s: messages "
                "between them may have expired. Retain them longer, or push from newer feature tables.",
                partition,
                self._topic,
                low,
                since.isoformat(),
            )
        return offset

    def _unreachable(self, error: "KafkaError | str") -> SourceError:
        told = error if isinstance(error, str) else said(error, self._secret)
        return SourceError(
            f"The topic {self._topic} at {self._servers} cannot be read: {told}. Check the servers and the settings "
            f"in {SETTINGS}, and start again: nothing is lost."
        )


def _settings() -> dict[str, Any]:
    text = os.environ.get(SETTINGS, "")
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise SourceError(
            f"The environment variable {SETTINGS}: expected a JSON object of librdkafka settings, found something "
            "else. Correct it."
        )
    return found


def _message(found: "KafkaMessage") -> Message:
    partition, offset, value = found.partition(), found.offset(), found.value()
    kind, sent = found.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE or partition is None or offset is None:
        raise SourceError(
            f"A message of partition {partition}, offset {offset} has no timestamp, so the time since which its "
            "features are known cannot be told. Configure the topic to set timestamps (message.timestamp.type)."
        )
    payload = value.encode() if isinstance(value, str) else value
    return Message(str(partition), (offset,), moment_of(sent), payload, by_sender=kind == TIMESTAMP_CREATE_TIME)
