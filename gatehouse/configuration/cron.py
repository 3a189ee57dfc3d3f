"""Cron expressions in the syntax of KFP's library (robfig/cron, version 1): six fields, seconds first, and descriptors.

KFP itself also accepts five fields, but reads them as all fields except the day of the week: `30 4 * * 1` then starts
30 seconds past minute 4 of every hour in January. So five fields are refused here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("second", 0, 59, {}),
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of the month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("day of the week", 0, 6, {name: number for number, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}
_YEARS = 5
"""KFP searches the next time within this number of years."""


@dataclass(frozen=True)
class Cron:
    """When something recurs.

    Attributes:
        chosen: The allowed values of the six fields.
        stars: Which fields are unrestricted, as `*`, `?` or `*/2`. If neither day field is, one match is enough.
    """

    chosen: tuple[frozenset[int], ...]
    stars: tuple[bool, ...]

    @classmethod
    def parse(cls, expression: str, fields: tuple[int, ...] = (6,)) -> "Cron":
        """Parse an expression.

        Args:
            expression: Six fields, or a descriptor such as `@daily`.
            fields: Allowed numbers of fields.

        Raises:
            ValueError: naming each wrong field, its allowed values, and what was found.
        """
        if expression.startswith("@") and expression not in _DESCRIPTORS:
            known = ", ".join(sorted(_DESCRIPTORS))
            raise ValueError(f"expected six fields or one of {known}, found {expression!r}; `interval` is for @every")
        parts = _DESCRIPTORS.get(expression, expression).split()
        if len(parts) not in fields:
            more = f"; put the seconds before it: 0 {expression}" if len(parts) == len(_FIELDS) - 1 else ""
            raise ValueError(f"expected six fields (seconds first), as 0 0 4 * * 1, found {len(parts)}{more}")
        problems: list[str] = []
        read = [_values(part, field, problems) for part, field in zip([*parts, "*"], _FIELDS, strict=False)]
        if problems:
            raise ValueError("; ".join(problems))
        found = cls(tuple(values for values, _ in read), tuple(star for _, star in read))
        if expression and found._never():
            raise ValueError(f"there is no such day: {expression}")
        return found

    def following(self, moment: datetime) -> datetime:
        """The first time after `moment`, in its time zone.

        Raises:
            ValueError: if there is none within five years.
        """
        when = _later(moment.replace(microsecond=0), timedelta(seconds=1))
        last = when.year + _YEARS
        while when.year <= last:
            ahead = self._ahead(when)
            if ahead is None:
                return when
            when = ahead
        raise ValueError("there is no such time within five years")

    def between(self, after: datetime, until: datetime) -> Iterator[datetime]:
        """The times after `after`, up to and including `until`."""
        while (after := self.following(after)) <= until:
            yield after

    def _ahead(self, when: datetime) -> datetime | None:
        """The next time that may match, if `when` does not."""
        seconds, minutes, hours, _, months, _ = self.chosen
        if when.month not in months:
            return (when.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
        if not self._on_day(when):
            return when.replace(hour=0, minute=0, second=0) + timedelta(days=1)
        if when.hour not in hours:
            return _later(when.replace(minute=0, second=0), timedelta(hours=1))
        if when.minute not in minutes:
            return _later(when.replace(second=0), timedelta(minutes=1))
        return None if when.second in seconds else _later(when, timedelta(seconds=1))

    def _on_day(self, when: datetime) -> bool:
        of_month, of_week = when.day in self.chosen[3], (when.weekday() + 1) % 7 in self.chosen[5]
        both: Callable[[tuple[bool, bool]], bool] = all if self.stars[3] or self.stars[5] else any
        return both((of_month, of_week))

    def _never(self) -> bool:
        longest = {2: 29} | dict.fromkeys((4, 6, 9, 11), 30)
        days = min(self.chosen[3])
        return (self.stars[3] or self.stars[5]) and all(days > longest.get(month, 31) for month in self.chosen[4])


def _later(when: datetime, by: timedelta) -> datetime:
    """A time this much later, also across a clock change."""
    return (when.astimezone(UTC) + by).astimezone(when.tzinfo)


def _values(part: str, field: tuple[str, int, int, dict[str, int]], problems: list[str]) -> tuple[frozenset[int], bool]:
    """The values of one field, and whether it is unrestricted; problems are added to `problems`."""
    name, least, most, names = field
    chosen: set[int] = set()
    star = False
    for item in filter(None, part.split(",")):
        try:
            values, opened = _range(item, least, most, names)
        except ValueError as error:
            problems.append(f"{name}: {error} in {item!r}; it takes {least} to {most}{_named(names)}")
            continue
        chosen |= values
        star = star or opened
    if not chosen and not any(problem.startswith(name) for problem in problems):
        problems.append(f"{name}: expected a value, found {part!r}")
    return frozenset(chosen), star


def _range(item: str, least: int, most: int, names: dict[str, int]) -> tuple[set[int], bool]:
    bounds, *steps = item.split("/")
    low, *high = bounds.split("-")
    if len(steps) > 1 or len(high) > 1:
        raise ValueError("expected low-high/step")
    star = low in ("*", "?")
    first = least if star else _number(low, names)
    last = most if star or (steps and not high) else _number(high[0], names) if high else first
    step = _number(steps[0], {}) if steps else 1
    if step == 0:
        raise ValueError("expected a step above 0")
    if first < least or last > most or first > last:
        raise ValueError(f"found {first} to {last}")
    return set(range(first, last + 1, step)), star


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"expected a number, found {text!r}")
    return int(text)


def _named(names: dict[str, int]) -> str:
    return f" or {next(iter(names))} to {list(names)[-1]}" if names else ""
