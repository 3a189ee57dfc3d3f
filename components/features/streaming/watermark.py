"""Event-time watermarks: how far a source has come, and which of its rows are late."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Watermark:
    """How far one source has come.

    Attributes:
        newest: The newest event time seen; None before the first.
        lateness: How much older a row may be and not count as late.
        late: How many rows were late. They count like all others: what they change is known from their arrival on.
    """

    newest: datetime | None
    lateness: timedelta
    late: int = 0

    @property
    def at(self) -> datetime | None:
        """The watermark: rows about an earlier time are late."""
        return None if self.newest is None else self.newest - self.lateness

    def advanced(self, events: Iterable[datetime | None]) -> "Watermark":
        """The watermark after rows about these times, in the order in which they arrived."""
        newest, late = self.newest, self.late
        for event in events:
            if event is None:
                continue
            if newest is None or event > newest:
                newest = event
            elif event < newest - self.lateness:
                late += 1
        return replace(self, newest=newest, late=late)
