"""Messages of a Redis stream; each reader has its own position, and a consumer group shows what was acknowledged."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from redis.exceptions import RedisError, ResponseError

from gatehouse.data.messages.clients import moment_of, redis_client, unreachable
from gatehouse.errors import SourceError
from gatehouse.online.streaming.stream import Message, Position, milliseconds

_PARTITION = ""  # The only one.
_LAST_OF_MILLISECOND = 2**64 - 1
_SILENCE_SECONDS = 30.0
_LONGEST_WAIT = 20_000  # Milliseconds: less than the silence that ends the connection.


class RedisMessages:
    """A `MessageStream`. Nothing is read through the group, so a reader of the same group takes no messages away."""

    def __init__(self, url: str, stream: str, group: str, since: datetime, after: Mapping[str, Position]) -> None:
        parts = urlsplit(url)
        self._redis = redis_client(parts._replace(query="").geturl(), _SILENCE_SECONDS)
        self._server = parts.hostname or parts.path
        self._stream, self._group = stream, group
        self._begin: Position = (milliseconds(since) - 1, _LAST_OF_MILLISECOND)
        self._after: Position | None = after.get(_PARTITION)
        self._behind = True

    @property
    def behind(self) -> frozenset[str]:
        """As `MessageStream.behind`."""
        return frozenset({_PARTITION}) if self._behind else frozenset()

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """As `MessageStream.read`. The message read last must still be there, else later ones may be gone too."""
        block = min(max(1, int(wait * 1000)), _LONGEST_WAIT) if wait else None
        with self._explained():
            # One transaction, so that nothing is trimmed between the two answers; a blocking read cannot be in one.
            both = self._redis.pipeline(transaction=block is None)
            both.xrange(self._stream, _text(self._after or (0, 0)), "+", count=1)
            both.xread({self._stream: _text(self._after or self._begin)}, count=limit, block=block)
            last, answer = both.execute()
        if self._after and not (last and _position(last[0][0]) == self._after):
            raise SourceError(
                f"The stream {self._stream} in Redis at {self._server} does not hold the message {_text(self._after)} "
                "any more, so messages after it may have been trimmed before they were read. Check the name in the "
                "URL, or push from newer feature tables."
            )
        messages = []
        for identity, entry in answer[0][1] if answer else ():
            fields: dict[str, Any] = {name.decode("utf-8", "backslashreplace"): value for name, value in entry.items()}
            position, payload = _position(identity), fields["json"] if set(fields) == {"json"} else fields
            messages.append(Message(_PARTITION, position, moment_of(position[0]), payload))
        self._behind = len(messages) >= limit
        if messages:
            self._after = messages[-1].position
        return messages

    def acknowledge(self, positions: Mapping[str, Position]) -> None:
        """As `MessageStream.acknowledge`."""
        last = positions.get(_PARTITION)
        with self._explained():
            if last is None or not self._redis.exists(self._stream):
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

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (RedisError, OSError) as error:
            raise unreachable(f"The stream {self._stream} in Redis at {self._server}", error, secret=True) from None


def _text(position: Position) -> str:
    return f"{position[0]}-{position[1]}"


def _position(identity: bytes) -> Position:
    first, _, second = identity.decode().partition("-")
    return int(first), int(second)
