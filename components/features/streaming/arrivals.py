"""Several streams as one, in the order of arrival, cut into micro-batches.

A stream that is behind holds the others back: what it still holds arrived before. A batch ends between two moments,
never within one, so that what arrived together counts together.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gatehouse.components.features.streaming.stream import Event, EventStream

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, order=True)
class Arrival:
    """A message and its table; `time` never goes back within a partition, whatever the clocks of senders say."""

    time: datetime
    table: str
    partition: str
    position: tuple[int, ...]
    event: Event = field(compare=False)


class Arrivals:
    """The messages of several tables, in the order in which they arrived."""

    def __init__(self, streams: Mapping[str, EventStream], since: datetime) -> None:
        self._streams = streams
        self._held: dict[str, list[Arrival]] = {table: [] for table in streams}
        self._reached: dict[tuple[str, str], datetime] = {}
        self._since = since

    def take(self, limit: int, wait: float) -> list[Arrival]:
        """The next micro-batch: about `limit` messages, all those of its last moment; empty if none came in time."""
        until = time.monotonic() + wait
        while True:
            came = self._read(limit, max(0.0, until - time.monotonic()))
            taken = self._cut(limit)
            if taken or (not came and time.monotonic() >= until):
                return taken

    def _read(self, limit: int, wait: float) -> int:
        """Read on where fewer than `limit` messages are held, or where what is held must wait for others."""
        came = 0
        stuck = not _whole_moments(self._ready(), limit)
        idle = not any(self._held.values())
        for table, stream in self._streams.items():
            held = self._held[table]
            wanted = limit - len(held) if len(held) < limit else limit
            if not stuck and len(held) >= limit:
                continue
            for event in stream.read(wanted, wait / len(self._streams) if idle else 0.0):
                place = (table, event.partition)
                reached = max(event.time, self._reached.get(place, self._since))
                self._reached[place] = reached
                held.append(Arrival(reached, table, event.partition, event.position, event))
                came += 1
        return came

    def _cut(self, limit: int) -> list[Arrival]:
        taken = _whole_moments(self._ready(), limit)
        gone = set(taken)
        for table, held in self._held.items():
            self._held[table] = [each for each in held if each not in gone]
        return taken

    def _ready(self) -> list[Arrival]:
        """What is held and arrived before all that may still be there unread."""
        behind = [(table, name) for table, stream in self._streams.items() for name in stream.behind]
        open_from = min((self._reached.get(place, _BEGINNING) for place in behind), default=None)
        held = [each for each in itertools.chain(*self._held.values()) if open_from is None or each.time < open_from]
        return sorted(held)


def _whole_moments(ready: Sequence[Arrival], limit: int) -> list[Arrival]:
    end = min(limit, len(ready))
    while 0 < end < len(ready) and ready[end].time == ready[end - 1].time:
        end += 1
    return list(ready[:end])
