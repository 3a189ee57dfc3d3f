"""Measures the age of the newest row of every feature view, and compares it with what its definition allows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM
from gatehouse.features.definitions.repository import View

if TYPE_CHECKING:
    from gatehouse.features.table_files import Files

_UNITS = {name: timedelta(**{f"{name}s": 1}) for name in ("day", "hour", "minute", "second")}


@dataclass(frozen=True)
class Freshness:
    """The freshness of a view at a moment, from the rows that are known at that moment.

    Attributes:
        view: Its name.
        allowed: The age that its definition allows; None for any.
        age: Age of its newest event; None where no row is known.
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
        """What is wrong with a stale view, and what was expected."""
        found = "no row is known" if self.age is None else f"its newest event is {self._age} old"
        allowed = "any age" if self.allowed is None else f"{_in_words(self.allowed)} at most"
        later = f"; {self.ahead} rows become known only later" if self.ahead else ""
        return f"{self.view}: {found}, expected {allowed}{later}"

    @property
    def _age(self) -> str:
        """The age in as few units as possible, but enough to show that it is more than allowed."""
        age, allowed = self.age or timedelta(0), self.allowed or timedelta(0)
        cut = (age // unit * unit for unit in _UNITS.values() if age >= 10 * unit)
        return next((_in_words(one) for one in cut if one > allowed), f"more than {_in_words(min(age, allowed))}")


def _in_words(time: timedelta) -> str:
    """A span of time in words: `3 days 20 hours`."""
    words, left = [], time
    for name, unit in _UNITS.items():
        count, left = divmod(left, unit)
        if count:
            words.append(f"{count} {name}{'s' * (count > 1)}")
    return " ".join(words) or f"{time.total_seconds():g} seconds"


@dataclass(frozen=True)
class Newest:
    """The newest rows of a view that are known at a moment.

    Attributes:
        event: Time of the newest event; None where no row is known.
        known: When the newest row became known.
        ahead: Number of rows that become known only later.
    """

    event: datetime | None
    known: datetime | None
    ahead: int

    @classmethod
    def of(cls, told: Sequence[Any]) -> "Newest":
        """Read what `told` wrote."""
        event, known = (None if time is None else datetime.fromisoformat(time) for time in told[:2])
        return cls(event, known, told[2])

    def told(self) -> list[Any]:
        """As a list for a record, with times in ISO 8601."""
        return [*(None if time is None else time.isoformat() for time in (self.event, self.known)), self.ahead]


def newest_rows(views: Iterable[View], tables: "Mapping[str, Files]", moment: datetime) -> dict[str, Newest]:
    """The newest rows of each view that is not static; a static view has no age.

    A view whose query fills a time grid up to `as_of` is always fresh, whatever its sources hold.

    Args:
        views: The views.
        tables: The Parquet files of each view.
        moment: The time of measuring; rows that become known later do not count.
    """
    from gatehouse.features.database import connect, quoted, rows_of, time_literal

    event, known_from = quoted(EVENT_TIMESTAMP), quoted(KNOWN_FROM)
    known = f"{known_from} <= {time_literal(moment)}"
    with connect() as connection:
        return {
            view.name: Newest(
                *connection.execute(
                    f"SELECT max({event}) FILTER ({known}), max({known_from}) FILTER ({known}), "
                    f"count(*) FILTER (NOT {known}) FROM {rows_of([*tables[view.name].values()])}"
                ).fetchall()[0]
            )
            for view in views
        }


def freshness_of(views: Iterable[View], newest: Mapping[str, Newest], moment: datetime) -> list[Freshness]:
    """The freshness of views at `moment`, in their order, from their newest rows."""
    found = []
    for view in views:
        rows = newest[view.name]
        age, known = (None if time is None else moment - time for time in (rows.event, rows.known))
        found.append(Freshness(view.name, view.spec.freshness, age, known, rows.ahead))
    return found
