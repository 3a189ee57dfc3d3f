"""Several streams as one, in the order of arrival, cut into micro-batches by the streams' own clock.

A micro-batch is what arrived within one interval. So it is the same however the streams are read: at once, bit by bit,
or again after a crash. A stream that is behind holds the others back: what it still holds arrived before.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gatehouse.components.features.streaming.stream import TOLERANCE, Event, EventStream

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_READ = 1000  # Messages of a stream that are read at once.


@dataclass(frozen=True, order=True)
class Arrival:
    """A message and its table; `time` never goes back within a partition, whatever the clocks of senders say."""

    time: datetime
    table: str
    partition: str
    position: tuple[int, ...]
    event: Event = field(compare=False)


class Arrivals:
    """The messages of several tables, in the order in which they arrived.

    Args:
        streams: By table.
        since: What the streams say to have arrived earlier counts as arrived then.
        interval: What arrives within one is a micro-batch; they are counted from the year 1 on.
        clock: Tells which messages come from the future; those have a flaw, and no time of their own.
    """

    def __init__(
        self,
        streams: Mapping[str, EventStream],
        since: datetime,
        interval: timedelta,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._streams, self._since, self._interval, self._clock = streams, since, interval, clock
        self._held: list[Arrival] = []
        self._reached: dict[tuple[str, str], datetime] = {}

    def take(self, wait: float) -> list[Arrival]:
        """The next micro-batch; empty if nothing arrived for `wait` seconds, and nothing is left to be read or taken.

        The newest interval is over with the first message behind it, or when nothing arrives for so long.
        """
        until = time.monotonic() + wait
        while not (taken := self._cut(quiet=False)):
            if self._read(max(0.0, until - time.monotonic())):
                until = time.monotonic() + wait
            elif time.monotonic() >= until and not self._behind():
                return self._cut(quiet=True)
        return taken

    def _read(self, wait: float) -> int:
        """Read on; how many messages came."""
        before = len(self._held)
        # What is behind has something to read at once.
        pause = 0.0 if self._behind() else wait / len(self._streams)
        for table, stream in self._streams.items():
            now = self._clock()
            self._held += [self._arrival(table, event, now) for event in stream.read(_READ, pause)]
        self._held.sort()
        return len(self._held) - before

    def _arrival(self, table: str, event: Event, now: datetime) -> Arrival:
        place = (table, event.partition)
        reached = self._reached.get(place, self._since)
        if event.time > now + TOLERANCE:
            flaw = f"its arrival, {event.time.isoformat()}, is ahead of this machine's clock, {now.isoformat()}"
            event = replace(event, flaw=flaw)
        else:
            reached = self._reached[place] = max(event.time, reached)
        return Arrival(reached, table, event.partition, event.position, event)

    def _cut(self, quiet: bool) -> list[Arrival]:
        """What arrived in the first interval, if that is over and all of it is read."""
        if not self._held:
            return []
        first = self._number(self._held[0].time)
        over = quiet or self._number(self._held[-1].time) > first
        if not over or any(self._number(reached) <= first for reached in self._behind()):
            return []
        taken = [each for each in self._held if self._number(each.time) == first]
        self._held = self._held[len(taken) :]
        return taken

    def _behind(self) -> list[datetime]:
        """How far the partitions have come of which more is there to be read."""
        places = [(table, name) for table, stream in self._streams.items() for name in stream.behind]
        return [self._reached.get(place, _BEGINNING) for place in places]

    def _number(self, moment: datetime) -> int:
        return (moment - _BEGINNING) // self._interval
