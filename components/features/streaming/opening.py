"""Opens the stream that a URL names: a stream of Redis, or a topic of Kafka."""

from collections.abc import Mapping
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from gatehouse.components.features.streaming.stream import MessageStream, Position
from gatehouse.errors import ConfigurationError


def open_stream(url: str, group: str, since: datetime, after: Mapping[str, Position]) -> MessageStream:
    """Open the stream at `url`.

    Args:
        url: `redis://host:port/0?stream=<key>` or `kafka://host:port,host:port?topic=<name>`.
        group: The name under which the stream shows acknowledged messages.
        since: Where nothing was read yet, start with the messages of this millisecond.
        after: The last message included, by partition. The stream's own acknowledgements are not used: they can be
            further ahead if the reader's folder was lost.

    Raises:
        ConfigurationError: if the URL names no stream.
    """
    parts = urlsplit(url)
    query = {name: values[0] for name, values in parse_qs(parts.query).items()}
    if parts.scheme in ("redis", "rediss", "unix") and query.get("stream"):
        # Imported here, so that a user of Redis needs no Kafka client, and a user of Kafka no Redis client.
        from gatehouse.components.features.streaming.redis_stream import RedisMessages

        return RedisMessages(url, query["stream"], group, since, after)
    if parts.scheme == "kafka" and query.get("topic"):
        from gatehouse.components.features.streaming.kafka_topic import KafkaMessages

        return KafkaMessages(parts.netloc, query["topic"], group, since, after)
    raise ConfigurationError(
        "The stream's URL: expected redis://host:port/0?stream=<key> or kafka://host:port?topic=<name>, found the "
        f"scheme {parts.scheme or 'none'!r} and the parameters {', '.join(sorted(query)) or 'none'}."
    )
