"""The interface of streams: messages in order, read from a position, acknowledged once their effect is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from urllib.parse import parse_qs, urlsplit

from gatehouse.errors import ConfigurationError
from gatehouse.runtime.redaction import require_encoded

Position = tuple[int, ...]
CLOCK_TOLERANCE = timedelta(minutes=5)
"""How much the clocks of two machines may differ."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Message:
    """One message; its position is greater than those before it in the partition."""

    partition: str
    position: Position
    time: datetime
    payload: bytes | Mapping[str, bytes] | None


class MessageStream(Protocol):
    """The messages of one raw table, read by one reader at a time."""

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """At most `limit` messages after those read before, in order within their partition; waits for the first.

        Raises SourceError if the stream cannot be reached, or messages that were never read are gone.
        """
        ...

    @property
    def behind(self) -> frozenset[str]:
        """Partitions that may hold messages which exist already and are not read yet."""
        ...

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """Note in the stream that all messages up to these positions have had their effect."""
        ...

    def close(self) -> None:
        """Leave the stream."""
        ...


def open_stream(url: str, group: str, since: datetime, after: Mapping[str, Position]) -> MessageStream:
    """Open `redis://host:port/0?stream=<key>` or `kafka://host:port,host:port?topic=<name>`.

    The stream shows acknowledged messages under the name `group`. Reading begins after the messages `after`, by
    partition; where nothing was read yet, with the millisecond `since`. The stream's own acknowledgements are not used:
    they can be further ahead if the reader's folder was lost.

    Raises ConfigurationError if the URL names no stream, or its password is not percent-encoded.
    """
    parts = urlsplit(require_encoded(url, "The stream's URL"))
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.scheme in ("redis", "rediss", "unix") and query.get("stream"):
        # Imported here, so that a user of Redis needs no Kafka client, and a user of Kafka no Redis client.
        from gatehouse.online.streaming.redis_stream import RedisMessages

        return RedisMessages(parts.geturl(), query["stream"], group, since, after)
    if parts.scheme == "kafka" and query.get("topic"):
        from gatehouse.online.streaming.kafka_topic import KafkaMessages

        return KafkaMessages(parts.netloc.rpartition("@")[2], query["topic"], group, since, after)
    raise ConfigurationError(
        "The stream's URL: expected redis://host:port/0?stream=<key> or kafka://host:port?topic=<name>, found the "
        f"scheme {parts.scheme!r} and {'another parameter' if query else 'no parameter'}."
    )


def milliseconds(moment: datetime) -> int:
    """The millisecond since 1970 in which a time lies."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)
