"""Measures the age of the newest row of every feature view, and compares it with what its definition allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View

if TYPE_CHECKING:
    from gatehouse.features.table_files import Files

Newest = tuple[datetime | None, datetime | None, int]
"""The time of a view's newest known event, when its newest row became known, and the rows that become known later."""


@dataclass(frozen=True)
class Freshness:
    """The freshness of a view at a moment, from the rows that are known at that moment.

    Attributes:
        allowed: The age that its definition allows; None for any.
        known: Time since its newest row became known. This row can be a correction of an old event.
        ahead: Number of rows that become known only later, because the clock is behind or the tables are of a later
            time.
    """

    view: str
    allowed: timedelta | None
    age: timedelta | None
    known: timedelta | None
    ahead: int

    @property
    def stale(self) -> bool:
        """Whether the view is older than allowed; a view with a limit and no known row is stale."""
        return self.allowed is not None and (self.age is None or self.age > self.allowed)

    @property
    def reason(self) -> str:
        """Why the view is stale, and what was expected."""
        seconds = timedelta(seconds=1)
        newest = "no row is known" if self.age is None else f"its newest event is {self.age // seconds * seconds} old"
        later = f"; {self.ahead} rows become known only later" if self.ahead else ""
        return f"{self.view}: {newest}, expected {self.allowed} at most{later}"


def newest_rows(views: Iterable[View], tables: "Mapping[str, Files]", moment: datetime) -> dict[str, Newest]:
    """The newest rows of each view that is not static; rows that become known after `moment` do not count.

    A view whose query fills a time grid up to `as_of` is always fresh, whatever its sources hold.
    """
    from gatehouse.features.database import connect, quoted, rows_of, time_literal

    event, known_from = quoted(EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    known = f"{known_from} <= {time_literal(moment)}"
    with connect() as connection:
        return {
            view.name: connection.execute(
                f"SELECT max({event}) FILTER ({known}), max({known_from}) FILTER ({known}), "
                f"count(*) FILTER (NOT {known}) FROM {rows_of([*tables[view.name].values()])}"
            ).fetchall()[0]
            for view in views
        }


def freshness_of(views: Iterable[View], newest: Mapping[str, Newest], moment: datetime) -> list[Freshness]:
    """The freshness of views at `moment`, in their order, from their newest rows."""
    measured = []
    for view in views:
        event, known, ahead = newest[view.name]
        age, since_known = (None if time is None else moment - time for time in (event, known))
        measured.append(Freshness(view.name, view.spec.freshness, age, since_known, ahead))
    return measured
