"""Merges several streams in the order of arrival, and cuts them into micro-batches by the streams' own clock.

A micro-batch holds the messages that arrived within one interval. So it is the same however the streams are read: at
once, in small parts, or again after a crash. While one stream still has messages of an interval, the others wait.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gatehouse.online.streaming.stream import CLOCK_TOLERANCE, Message, MessageStream

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_READ = 1000  # Messages that are read from a stream at once.


@dataclass(frozen=True, order=True)
class ArrivedMessage:
    """A message and its place in the order of arrival; within a partition `time` never decreases.

    `flaw` says why it cannot be used: its time is ahead of this machine's clock.
    """

    time: datetime
    table: str
    partition: str
    position: tuple[int, ...]
    message: Message = field(compare=False)
    flaw: str = field(default="", compare=False)


class MicroBatches:
    """The messages of several tables in the order of arrival, one micro-batch at a time.

    A message with a time before `since` counts as arrived at `since`. Micro-batches have the length `interval`, counted
    from the year 1 on. Messages with a time after the `clock` do not move the time of arrival.
    """

    def __init__(
        self,
        streams: Mapping[str, MessageStream],
        since: datetime,
        interval: timedelta,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._streams, self._since, self._interval, self._clock = streams, since, interval, clock
        self._pending: list[ArrivedMessage] = []
        # Arrival of the newest message that was pending before all streams were last read.
        self._newest_before_last_read: datetime | None = None
        self._reached: dict[tuple[str, str], datetime] = {}

    def next_batch(self, wait: float) -> list[ArrivedMessage]:
        """The next micro-batch; empty if nothing arrived for `wait` seconds and nothing is left to read.

        An interval is over in two cases: a message of a later interval is there and all streams were read again after
        that, or nothing arrives for `wait` seconds.
        """
        until = time.monotonic() + wait
        while True:
            unread: list[str] = []
            for table, stream in self._streams.items() if self._pending else ():
                # A stream may have unread messages of the first interval.
                reached = [self._reached.get((table, name), _BEGINNING) for name in stream.behind]
                if not all(map(self._is_after_first, reached)):
                    unread.append(table)
            if self._pending and not unread and self._is_after_first(self._newest_before_last_read):
                break
            if self._read(unread, max(0.0, until - time.monotonic())):
                until = time.monotonic() + wait
            elif time.monotonic() >= until and not self._is_behind():
                break
        first = [message for message in self._pending if not self._is_after_first(message.time)]
        self._pending = self._pending[len(first) :]
        return first

    def _read(self, unread: list[str], wait: float) -> int:
        """Read more messages, first from streams that may have some of the first interval; returns their number."""
        count, newest = len(self._pending), self._pending[-1].time if self._pending else None
        # Do not wait where something can be read at once, or where the interval may be over already.
        pause = 0.0 if self._is_behind() or self._is_after_first(newest) else wait / len(self._streams)
        for table in unread or self._streams:
            now = self._clock()
            for message in self._streams[table].read(_READ, pause):
                place, flaw = (table, message.partition), ""
                reached = self._reached.get(place, self._since)
                if message.time > now + CLOCK_TOLERANCE:
                    flaw = (
                        f"its arrival, {message.time.isoformat()}, is ahead of this machine's clock, {now.isoformat()}"
                    )
                else:
                    reached = self._reached[place] = max(message.time, reached)
                self._pending.append(ArrivedMessage(reached, table, message.partition, message.position, message, flaw))
        self._pending.sort()
        if not unread:
            self._newest_before_last_read = newest
        return len(self._pending) - count

    def _is_after_first(self, moment: datetime | None) -> bool:
        """Whether a time lies after the interval of the first pending message."""
        return moment is not None and self._number(moment) > self._number(self._pending[0].time)

    def _is_behind(self) -> bool:
        return any(stream.behind for stream in self._streams.values())

    def _number(self, moment: datetime) -> int:
        return (moment - _BEGINNING) // self._interval
