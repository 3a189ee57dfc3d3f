"""Opens the stream that a URL names: a stream of Redis, or a topic of Kafka."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from gatehouse.errors import ConfigurationError
from gatehouse.online.streaming.stream import MessageStream, Position
from gatehouse.runtime.redaction import require_encoded


def open_stream(url: str, group: str, since: datetime, after: Mapping[str, Position]) -> MessageStream:
    """Open the stream at `url`.

    Args:
        url: `redis://host:port/0?stream=<key>` or `kafka://host:port,host:port?topic=<name>`.
        group: The name under which the stream shows acknowledged messages.
        since: Where nothing was read yet, start with the messages of this millisecond.
        after: The last message included, by partition. The stream's own acknowledgements are not used: they can be
            further ahead if the reader's folder was lost.

    Raises:
        ConfigurationError: if the URL names no stream, or its password is not percent-encoded.
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
