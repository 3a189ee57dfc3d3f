"""Clients of Kafka and Redis for readers of messages, whose errors show no secret."""

import json
import logging
import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from gatehouse.errors import DeclarationError, SourceError
from gatehouse.runtime.redaction import error_text

if TYPE_CHECKING:
    from confluent_kafka import Consumer
    from redis import Redis

_log = logging.getLogger(__name__)
_EPOCH, _LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


def kafka_settings(variable: str) -> dict[str, Any]:
    """The librdkafka settings in an environment variable; none where no variable is named.

    Raises DeclarationError if the variable does not hold a JSON object.
    """
    try:
        settings = json.loads(os.environ.get(variable, "")) if variable else {}
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise DeclarationError(f"The environment variable {variable}: expected a JSON object of librdkafka settings.")
    return settings


def kafka_consumer(servers: str, settings: dict[str, Any], group: str) -> "Consumer":
    """A consumer that commits nothing by itself, reports the ends of partitions, and reads committed transactions."""
    from confluent_kafka import Consumer

    fixed = {"group.id": group, "enable.auto.commit": False, "enable.partition.eof": True}
    fixed |= {"auto.offset.reset": "error", "isolation.level": "read_committed"}
    return Consumer({"bootstrap.servers": servers, **settings, **fixed}, logger=_log)


def kafka_partitions(consumer: "Consumer", topic: str, seconds: float) -> list[int]:
    """The partitions of a topic. Raises DeclarationError if the cluster has no such topic."""
    metadata = consumer.list_topics(topic, timeout=seconds).topics[topic]
    if metadata.error is not None or not metadata.partitions:
        raise DeclarationError(f"The cluster has no topic {topic!r}: {metadata.error}.")
    return sorted(metadata.partitions)


def redis_client(url: str, seconds: float) -> "Redis":
    """A client that waits so many seconds for an answer. It connects at the first command."""
    from redis import Redis

    client: Redis = Redis.from_url(url, socket_timeout=seconds, socket_connect_timeout=seconds)
    return client


def unreachable(what: str, error: object, secret: bool) -> SourceError:
    """The error of a stream that cannot be read; with `secret` the client's words are not shown."""
    reason = error if isinstance(error, str) else error_text(error, secret)
    return SourceError(
        f"{what} cannot be read: {reason}. Check the server, the settings and the credentials, and run again: nothing "
        "is lost."
    )


def moment_of(milliseconds: int) -> datetime:
    """The time so many milliseconds after 1970, limited to the years 1970 to 9999."""
    last = (_LAST - _EPOCH) // timedelta(milliseconds=1)
    return _EPOCH + timedelta(milliseconds=max(milliseconds, 0)) if milliseconds < last else _LAST
