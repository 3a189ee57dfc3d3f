"""Windows of time for a backfill: one text that names them, and the run parameters of each."""

import itertools
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gatehouse.errors import ConfigurationError

MOST = 1000
"""Windows of one backfill: more are a mistyped step rather than a wish."""
_STEP = re.compile(r"P(?:(\d+)M|(\d+)W|(\d+)D|T(\d+)H)")


@dataclass(frozen=True)
class Window:
    """A span of time, in UTC.

    Attributes:
        start: Its start.
        end: Its end, which belongs to the next window.
    """

    start: datetime
    end: datetime

    def __str__(self) -> str:
        """`START/END`, as the parameter `window` of a pipeline takes it."""
        return f"{_text(self.start)}/{_text(self.end)}"

    @property
    def name(self) -> str:
        """For names of runs: `20130101-20130201`, with hours where a window does not begin and end at midnight."""
        form = "%Y%m%d" if _at_midnight(self.start) and _at_midnight(self.end) else "%Y%m%dT%H%M"
        return f"{self.start:{form}}-{self.end:{form}}"

    def parameters(self, known: Collection[str]) -> dict[str, str]:
        """What a run of this window gets.

        A pipeline that selects decisions (`since` and `until`) reads all events, as features of the first decisions are
        computed from events before them. Any other gets the events of the window alone.

        Args:
            known: Names of the pipeline's parameters.

        Raises:
            ConfigurationError: if the pipeline takes no window.
        """
        if {"since", "until"} <= set(known):
            return {"since": _text(self.start), "until": _text(self.end)}
        if "window" in known:
            return {"window": str(self)}
        raise ConfigurationError(
            "--windows: expected a pipeline with the parameters since and until, or window; this one has neither. "
            "Backfill training, monitoring or scoring."
        )


def windows_of(text: str) -> tuple[Window, ...]:
    """The windows that a text names, in order of time.

    `START/END/STEP` is cut into steps, the last of which may be shorter; `START/END` is one window; several are
    separated by commas. Starts and ends are ISO 8601, in UTC where they have no zone. A step is a number of months
    (`P1M`), weeks (`P1W`), days (`P1D`) or hours (`PT6H`).

    Raises:
        ConfigurationError: if it has another form, ends before it starts, overlaps, or names more than `MOST`.
    """
    found = sorted(
        (window for part in text.split(",") for window in _cut(part.strip())), key=lambda each: (each.start, each.end)
    )
    for before, after in itertools.pairwise(found):
        if after.start < before.end:
            raise ConfigurationError(f"--windows: expected windows that do not overlap, found {before} and {after}.")
    if len(found) > MOST:
        raise ConfigurationError(f"--windows: expected at most {MOST:,} windows, found {len(found):,} in {text!r}.")
    return tuple(found)


def _cut(text: str) -> Iterator[Window]:
    parts = text.split("/")
    step = _STEP.fullmatch(parts[2]) if len(parts) == 3 else None
    if len(parts) == 3 and (step is None or not int(step[step.lastindex or 0])):
        raise ConfigurationError(
            "--windows: expected as step a number of months P1M, weeks P1W, days P1D or hours PT6H, one at least, "
            f"found {parts[2]!r} in {text!r}."
        )
    if len(parts) not in (2, 3):
        raise ConfigurationError(
            "--windows: expected START/END or START/END/STEP in ISO 8601, e.g. 2013-01-01/2013-07-01/P1M, "
            f"found {text!r}."
        )
    start, end = (_moment(part) for part in parts[:2])
    if start >= end:
        raise ConfigurationError(f"--windows: expected a start before its end, found {text!r}.")
    if step is None:
        yield Window(start, end)
        return
    number, low = 0, start
    while low < end and number <= MOST:
        number += 1
        high = min(_after(start, step, number), end)
        yield Window(low, high)
        low = high


def _after(start: datetime, step: re.Match[str], number: int) -> datetime:
    """The start, and so many steps later; a month that lacks the day ends at its last one."""
    months, weeks, days, hours = (int(each or 0) * number for each in step.groups())
    if not months:
        return start + timedelta(weeks=weeks, days=days, hours=hours)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    first = start.replace(year=year, month=month + 1, day=1)
    following = first.replace(year=year + month // 11, month=(month + 1) % 12 + 1)
    return min(first + timedelta(days=start.day - 1), following - timedelta(days=1))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"--windows: expected a time in ISO 8601, e.g. 2013-01-01 or 2013-01-01T06:00:00Z, found {text!r}."
        ) from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _at_midnight(moment: datetime) -> bool:
    return (moment.hour, moment.minute, moment.second) == (0, 0, 0)


def _text(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
