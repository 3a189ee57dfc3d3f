"""Merges several streams in the order of arrival, and cuts them into micro-batches by the streams' own clock.

A micro-batch holds the messages that arrived within one interval. So it is the same however the streams are read: at
once, in small parts, or again after a crash. While one stream still has messages of an interval, the others wait.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gatehouse.errors import SourceError
from gatehouse.online.streaming.stream import CLOCK_TOLERANCE, Message, MessageStream

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_READ = 1000  # Messages that are read from a stream at once.


@dataclass(frozen=True, order=True)
class ArrivedMessage:
    """A message and its place in the order of arrival.

    Attributes:
        time: When it arrived. Within a partition it never decreases, whatever the senders' clocks say.
        table: The raw table of its stream.
        partition: The message's partition.
        position: The message's position.
        message: The message.
    """

    time: datetime
    table: str
    partition: str
    position: tuple[int, ...]
    message: Message = field(compare=False)


class MicroBatches:
    """The messages of several tables in the order of arrival, one micro-batch at a time.

    Args:
        streams: Streams by table.
        since: A message with an earlier time of arrival counts as arrived at this time.
        interval: Length of the interval of one micro-batch; intervals are counted from the year 1 on.
        clock: Gives the time now, to detect messages with a future time. If the sender set the time, the message has a
            flaw and does not move the time. If the broker set it, reading ends, as all later messages would have it
            too.
    """

    def __init__(
        self,
        streams: Mapping[str, MessageStream],
        since: datetime,
        interval: timedelta,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._streams, self._since, self._interval, self._clock = streams, since, interval, clock
        self._held: list[ArrivedMessage] = []
        # Arrival of the newest message that was held before all streams were last read.
        self._newest_before_last_read: datetime | None = None
        self._reached: dict[tuple[str, str], datetime] = {}

    def next_batch(self, wait: float) -> list[ArrivedMessage]:
        """The next micro-batch; empty if nothing arrived for `wait` seconds and nothing is left to read.

        An interval is over in two cases: a message of a later interval is there and all streams were read again after
        that, or nothing arrives for `wait` seconds.

        Raises:
            SourceError: if a broker's clock, or this machine's, is wrong.
        """
        until = time.monotonic() + wait
        while not (taken := self._first_interval(silent=False)):
            if self._read(max(0.0, until - time.monotonic())):
                until = time.monotonic() + wait
            elif time.monotonic() >= until and not self._behind():
                return self._first_interval(silent=True)
        return taken

    def _read(self, wait: float) -> int:
        """Read more messages, first from streams that may have some of the first interval; returns their number."""
        before, newest = len(self._held), self._held[-1].time if self._held else None
        unfinished = {table for table in self._streams if self._held and self._has_more_of_first(table)}
        # Do not wait where something can be read at once, or where the interval may be over already.
        pause = 0.0 if self._behind() or self._is_after_first(newest) else wait / len(self._streams)
        for table in unfinished or self._streams:
            now = self._clock()
            self._held += [self._arrived(table, each, now) for each in self._streams[table].read(_READ, pause)]
        self._held.sort()
        if not unfinished:
            self._newest_before_last_read = newest
        return len(self._held) - before

    def _arrived(self, table: str, message: Message, now: datetime) -> ArrivedMessage:
        """A message with its time of arrival."""
        place = (table, message.partition)
        reached = self._reached.get(place, self._since)
        if message.time <= now + CLOCK_TOLERANCE:
            reached = self._reached[place] = max(message.time, reached)
        elif message.by_sender:
            flaw = f"its arrival, {message.time.isoformat()}, is ahead of this machine's clock, {now.isoformat()}"
            message = replace(message, flaw=flaw)
        else:
            raise SourceError(
                f"The stream of {table} set the timestamp {message.time.isoformat()} on the message "
                f"{'-'.join(map(str, message.position))}, but this machine's clock says {now.isoformat()}. Correct the "
                "clock that is wrong, and start again: nothing is lost. A broker whose clock was ahead may keep "
                "setting such timestamps until that time is reached."
            )
        return ArrivedMessage(reached, table, message.partition, message.position, message)

    def _first_interval(self, silent: bool) -> list[ArrivedMessage]:
        """Take the messages of the first interval, if it is over and all of it is read; silence ends it as well."""
        if not self._held:
            return []
        first = self._number(self._held[0].time)
        over = silent or self._is_after_first(self._newest_before_last_read)
        if not over or any(map(self._has_more_of_first, self._streams)):
            return []
        taken = [each for each in self._held if self._number(each.time) == first]
        self._held = self._held[len(taken) :]
        return taken

    def _is_after_first(self, moment: datetime | None) -> bool:
        """Whether a time lies after the first interval."""
        return moment is not None and self._number(moment) > self._number(self._held[0].time)

    def _has_more_of_first(self, table: str) -> bool:
        """Whether a stream may have unread messages of the first interval."""
        first = self._number(self._held[0].time)
        reached = (self._reached.get((table, name), _BEGINNING) for name in self._streams[table].behind)
        return any(self._number(each) <= first for each in reached)

    def _behind(self) -> bool:
        """Whether any stream may have unread messages."""
        return any(stream.behind for stream in self._streams.values())

    def _number(self, moment: datetime) -> int:
        """The number of the interval in which a time lies."""
        return (moment - _BEGINNING) // self._interval
