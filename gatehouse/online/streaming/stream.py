"""The interface of streams: messages in order, read from a position, acknowledged once their effect is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol

Position = tuple[int, ...]
CLOCK_TOLERANCE = timedelta(minutes=5)
"""How much the clocks of two machines may differ."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Message:
    """One message.

    Attributes:
        partition: The partition of the stream; empty if the stream has only one.
        position: Its position in the partition, greater than those before it.
        time: When it arrived, as its envelope says.
        payload: A JSON object, or fields of text; None for a message without a value.
        flaw: Why it cannot be used, whatever its content is.
        by_sender: Whether the sender set the time, and not the broker.
    """

    partition: str
    position: Position
    time: datetime
    payload: bytes | Mapping[str, bytes] | None
    flaw: str = ""
    by_sender: bool = False


class MessageStream(Protocol):
    """The messages of one raw table, read by one reader at a time."""

    def read(self, limit: int, wait: float) -> Sequence[Message]:
        """The messages after those read before, in order within their partition.

        Args:
            limit: Maximum number of messages.
            wait: How many seconds to wait for the first of them.

        Raises:
            SourceError: if the stream cannot be reached, or messages that were never read are gone.
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


def milliseconds(moment: datetime) -> int:
    """The millisecond since 1970 in which a time lies."""
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def moment_of(found: int) -> datetime:
    """The time `found` milliseconds after 1970, limited to the calendar; negative values give 1970."""
    return _EPOCH + timedelta(milliseconds=max(found, 0)) if found < milliseconds(_LAST) else _LAST
