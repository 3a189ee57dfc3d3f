"""Several streams as one, in the order of arrival, cut into micro-batches by the streams' own clock.

A micro-batch is what arrived within one interval. So it is the same however the streams are read: at once, bit by bit,
or again after a crash. A stream that is behind holds the others back: what it still holds arrived before.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from gatehouse.components.features.streaming.stream import TOLERANCE, Event, EventStream
from gatehouse.errors import SourceError

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
        clock: Tells which messages come from the future. Where a sender stamped one, it has a flaw, and no time of its
            own; a broker stamps all that follow so too, and reading ends.
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
        self._whole: datetime | None = None  # The newest message held before all streams were read once more.
        self._reached: dict[tuple[str, str], datetime] = {}

    def take(self, wait: float) -> list[Arrival]:
        """The next micro-batch; empty if nothing arrived for `wait` seconds, and nothing is left to be read or taken.

        The newest interval is over when all streams were read after the first message behind it, or when nothing
        arrives for so long.

        Raises:
            SourceError: if a broker's clock, or this machine's, is wrong.
        """
        until = time.monotonic() + wait
        while not (taken := self._cut(quiet=False)):
            if self._read(max(0.0, until - time.monotonic())):
                until = time.monotonic() + wait
            elif time.monotonic() >= until and not self._behind():
                return self._cut(quiet=True)
        return taken

    def _read(self, wait: float) -> int:
        """Read on; how many messages came. Where streams hold the first interval back, only those are read."""
        before, newest = len(self._held), self._held[-1].time if self._held else None
        late = {table for table in self._streams if self._held and self._holds_back(table)}
        # What is behind has something to read at once; and nobody waits to learn that an interval is over.
        pause = 0.0 if self._behind() or self._later(newest) else wait / len(self._streams)
        for table in late or self._streams:
            now = self._clock()
            self._held += [self._arrival(table, event, now) for event in self._streams[table].read(_READ, pause)]
        self._held.sort()
        if not late:
            self._whole = newest
        return len(self._held) - before

    def _arrival(self, table: str, event: Event, now: datetime) -> Arrival:
        place = (table, event.partition)
        reached = self._reached.get(place, self._since)
        if event.time <= now + TOLERANCE:
            reached = self._reached[place] = max(event.time, reached)
        elif event.by_sender:
            flaw = f"its arrival, {event.time.isoformat()}, is ahead of this machine's clock, {now.isoformat()}"
            event = replace(event, flaw=flaw)
        else:
            raise SourceError(
                f"The stream of {table} stamped the message {'-'.join(map(str, event.position))} with "
                f"{event.time.isoformat()}, and this machine's clock says {now.isoformat()}. Set right the clock that "
                "is wrong, and start again: nothing is lost. If it was the broker's, it stamps messages so until that "
                "time has come."
            )
        return Arrival(reached, table, event.partition, event.position, event)

    def _cut(self, quiet: bool) -> list[Arrival]:
        """What arrived in the first interval, if that is over and all of it is read."""
        if not self._held:
            return []
        first = self._number(self._held[0].time)
        over = quiet or self._later(self._whole)
        if not over or any(map(self._holds_back, self._streams)):
            return []
        taken = [each for each in self._held if self._number(each.time) == first]
        self._held = self._held[len(taken) :]
        return taken

    def _later(self, moment: datetime | None) -> bool:
        """Whether a time lies behind the first interval."""
        return moment is not None and self._number(moment) > self._number(self._held[0].time)

    def _holds_back(self, table: str) -> bool:
        """Whether a stream has more to be read of the first interval."""
        first = self._number(self._held[0].time)
        reached = (self._reached.get((table, name), _BEGINNING) for name in self._streams[table].behind)
        return any(self._number(each) <= first for each in reached)

    def _behind(self) -> bool:
        """Whether any stream has more to be read."""
        return any(stream.behind for stream in self._streams.values())

    def _number(self, moment: datetime) -> int:
        return (moment - _BEGINNING) // self._interval
