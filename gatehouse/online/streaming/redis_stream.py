"""Messages of a Redis stream; each reader has its own position, and a consumer group shows what was acknowledged."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from redis import Redis
from redis.exceptions import RedisError, ResponseError

from gatehouse.errors import SourceError
from gatehouse.online.streaming.stream import Message, Position, milliseconds, moment_of

logger = logging.getLogger(__name__)

_ONE = ""  # The only partition.
_LAST_OF_MILLISECOND = 2**64 - 1
_SILENCE_SECONDS = 30.0
_LONGEST_WAIT = 20_000  # Milliseconds: less than the silence that ends the connection.


class RedisMessages:
    """A `MessageStream`. Nothing is read through the group, so a reader of the same group takes no messages away."""

    def __init__(self, url: str, stream: str, group: str, since: datetime, after: Mapping[str, Position]) -> None:
        parts = urlsplit(url)
        self._redis: Redis = Redis.from_url(
            parts._replace(query="").geturl(), socket_timeout=_SILENCE_SECONDS, socket_connect_timeout=_SILENCE_SECONDS
        )
        self._server = parts.hostname or parts.path
        self._stream, self._group = stream, group
        self._begin: Position = (milliseconds(since) - 1, _LAST_OF_MILLISECOND)
        self._after: Position | None = after.get(_ONE)
        self._behind = True
        with self._explained():
            if not self._redis.exists(stream):
                logger.warning("Redis at %s has no stream %s yet; waiting for its first message", self._server, stream)

    @property
    def behind(self) -> frozenset[str]:
        """As `MessageStream.behind`."""
        return frozenset({_ONE}) if self._behind else frozenset()

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """As `MessageStream.read`."""
        with self._explained():
            messages = [self._message(entry) for entry in self._next(limit, wait)]
        self._behind = len(messages) >= limit
        if messages:
            if self._after is None:
                self._tell_if_trimmed()
            self._after = messages[-1].position
        return messages

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """As `MessageStream.acknowledge`."""
        last = positions.get(_ONE)
        if last is None:
            return
        with self._explained():
            if not self._redis.exists(self._stream):
                return
            try:
                self._redis.xgroup_create(self._stream, self._group, id=_text(last))
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
                self._redis.xgroup_setid(self._stream, self._group, _text(last))

    def close(self) -> None:
        """As `MessageStream.close`."""
        self._redis.close()

    def _next(self, count: int, wait: float) -> list[Any]:
        """The next entries; the message read last must still be in the stream, else later ones may be gone too."""
        block = min(max(1, int(wait * 1000)), _LONGEST_WAIT) if wait else None
        # One transaction, so that nothing is trimmed between the two answers. Blocking reads cannot be in a
        # transaction.
        both = self._redis.pipeline(transaction=block is None)
        both.xrange(self._stream, _text(self._after or (0, 0)), "+", count=1)
        both.xread({self._stream: _text(self._after or self._begin)}, count=count, block=block)
        following, found = both.execute()
        if self._after and not (following and _position(following[0][0]) == self._after):
            raise self._lost(_text(self._after), there=bool(found or following or self._redis.exists(self._stream)))
        return list(found[0][1]) if found else []

    def _message(self, entry: tuple[bytes, Mapping[bytes, bytes]]) -> Message:
        position = _position(entry[0])
        fields = {name.decode("utf-8", "backslashreplace"): value for name, value in entry[1].items()}
        payload = fields["json"] if set(fields) == {"json"} else fields
        return Message(_ONE, position, moment_of(position[0]), payload)

    def _tell_if_trimmed(self) -> None:
        """Warn if messages after the first wanted time may be gone, as none before it is left (Redis 7 and later)."""
        with self._explained():
            found = self._redis.xinfo_stream(self._stream)
        first = found["first-entry"]
        if found.get("entries-added", 0) > found["length"] and first and _position(first[0]) > self._begin:
            logger.warning(
                "The stream %s begins with %s, and the feature tables end at %s: messages between them may have been "
                "trimmed. Retain them longer, or push from newer feature tables.",
                self._stream,
                _text(_position(first[0])),
                moment_of(self._begin[0] + 1).isoformat(),
            )

    def _lost(self, identity: str, *, there: bool) -> SourceError:
        if not there:
            return SourceError(
                f"Redis at {self._server} has no stream {self._stream}, and the table was pushed up to the message "
                f"{identity}. Check the name in the URL; if the stream was deleted, push from newer feature tables."
            )
        return SourceError(
            f"The stream {self._stream} no longer holds the message {identity}, so messages after it may have been "
            "trimmed before they were read. Trim by MINID, not beyond what the group has acknowledged; to go on "
            "without them, push from newer feature tables."
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise SourceError(
                f"The stream {self._stream} in Redis at {self._server} cannot be read: {type(error).__name__}. Check "
                "the server, the user and the password, and start again: nothing is lost."
            ) from None


def _text(position: Position) -> str:
    return f"{position[0]}-{position[1]}"


def _position(identity: bytes | str) -> Position:
    text = identity.decode() if isinstance(identity, bytes) else identity
    first, _, second = text.partition("-")
    return int(first), int(second or 0)
