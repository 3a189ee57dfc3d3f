"""A broker of Kafka for tests: librdkafka's own, in this process."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer


class Broker:
    """The broker's address, and records for its topics, which have four partitions."""

    def __init__(self) -> None:
        self._producer = Producer({"test.mock.num.brokers": 1, "log_level": 3})
        ((_, broker),) = self._producer.list_topics(timeout=30).brokers.items()
        self.address = f"{broker.host}:{broker.port}"

    def send(self, topic: str, bodies: Sequence[Mapping[str, Any] | bytes | None], partition: int = 0) -> None:
        """Append records to a partition; bodies that are no bytes are sent as JSON."""
        for body in bodies:
            value = json.dumps(body).encode() if isinstance(body, Mapping) else body
            self._producer.produce(topic, value, partition=partition, key=f"k{partition}")
            self._producer.poll(0)
        assert self._producer.flush(30) == 0


@contextmanager
def kafka_broker() -> Iterator[Broker]:
    """Start a broker, which ends with this context."""
    broker = Broker()
    yield broker
    del broker._producer
