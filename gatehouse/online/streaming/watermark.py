"""Event-time watermarks: the newest event time of a source, and which of its rows are late."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Watermark:
    """The progress of one source in event time.

    Attributes:
        newest: The newest event time seen; None before the first.
        lateness: How much older than the newest a row may be without counting as late.
        late: Number of late rows. They count like all others: their changes are known from their arrival on.
    """

    newest: datetime | None
    lateness: timedelta
    late: int = 0

    @property
    def at(self) -> datetime | None:
        """The watermark: rows with an earlier event time are late."""
        return None if self.newest is None else self.newest - self.lateness

    def advanced(self, events: Iterable[datetime | None]) -> "Watermark":
        """The watermark after rows with these event times, in the order of arrival."""
        newest, late = self.newest, self.late
        for event in events:
            if event is None:
                continue
            if newest is None or event > newest:
                newest = event
            elif event < newest - self.lateness:
                late += 1
        return replace(self, newest=newest, late=late)
