"""Windows of time for a backfill: one text that names them, and the run parameters of each."""

import calendar
import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

from gatehouse.configuration.times import interval
from gatehouse.errors import ConfigurationError

MOST = 1000
"""Most windows of one backfill: more are a mistyped step rather than a wish."""
_STEP = re.compile(r"P(?:([1-9]\d*)M|([1-9]\d*)W|([1-9]\d*)D|T([1-9]\d*)H)")


@dataclass(frozen=True)
class Window:
    """A span of time in UTC; its end belongs to the next window."""

    start: datetime
    end: datetime

    def __str__(self) -> str:
        """`START/END`, for the parameter `window` of a pipeline."""
        return "/".join(f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in (self.start, self.end))

    @property
    def name(self) -> str:
        """For names of runs: `20130101-20130201`, with hours if a window does not begin and end at midnight."""
        at_midnight = {(moment.hour, moment.minute, moment.second) for moment in (self.start, self.end)} == {(0, 0, 0)}
        form = "%Y%m%d" if at_midnight else "%Y%m%dT%H%M"
        return f"{self.start:{form}}-{self.end:{form}}"

    def parameters(self, names: Collection[str]) -> dict[str, str]:
        """The parameters for a run of this window, of a pipeline that has the parameters `names`.

        A pipeline that selects decisions (`since` and `until`) reads all events, as features of the first decisions are
        computed from events before them. Any other gets the events of the window alone. Raises ConfigurationError if
        the pipeline takes no window.
        """
        if {"since", "until"} <= set(names):
            return dict(zip(("since", "until"), str(self).split("/"), strict=True))
        if "window" in names:
            return {"window": str(self)}
        raise ConfigurationError(
            "--windows: expected a pipeline with the parameters since and until, or window; this one has neither. "
            "Backfill training, monitoring or scoring."
        )


def windows_of(text: str) -> tuple[Window, ...]:
    """The windows that a text names, in order of time.

    `START/END/STEP` is cut into steps, the last of which may be shorter; `START/END` is one window; several are
    separated by commas. Starts and ends are ISO 8601, in UTC where they have no zone. A step is a number of months
    (`P1M`), weeks (`P1W`), days (`P1D`) or hours (`PT6H`), at the one offset of start and end. Raises
    ConfigurationError if it has another form, ends before it starts, overlaps, or names more than `MOST`.
    """
    windows: list[Window] = []
    for part in map(str.strip, text.split(",")):
        bounds, step = part.split("/"), None
        if len(bounds) == 3:
            step = _STEP.fullmatch(bounds.pop())
            if step is None:
                raise ConfigurationError(
                    "--windows: expected a step of at least one month P1M, week P1W, day P1D or hour PT1H, found "
                    f"{part!r}."
                )
        start, end = interval("--windows", "/".join(bounds))
        here, there = (datetime.fromisoformat(bound).utcoffset() or timedelta() for bound in bounds)
        if step and not step[4] and here != there:  # Hours are the same at every offset.
            raise ConfigurationError(
                f"--windows: expected steps between two times of one offset, found {part!r}. Where clocks change in "
                "between, separate windows by commas."
            )
        low, number = start, 0
        while low < end and len(windows) <= MOST:
            number += 1
            high = min(_after(start.astimezone(timezone(here)), step, number).astimezone(UTC), end) if step else end
            windows.append(Window(low, high))
            low = high
    ordered = sorted(windows, key=lambda window: (window.start, window.end))
    for before, after in itertools.pairwise(ordered):
        if after.start < before.end:
            raise ConfigurationError(f"--windows: expected windows that do not overlap, found {before} and {after}.")
    if len(ordered) > MOST:
        raise ConfigurationError(f"--windows: expected at most {MOST:,} windows, found more in {text!r}.")
    return tuple(ordered)


def _after(start: datetime, step: re.Match[str], number: int) -> datetime:
    """The start, and so many steps later; a month that lacks the day ends at its last one."""
    months, weeks, days, hours = (int(count or 0) * number for count in step.groups())
    if not months:
        return start + timedelta(weeks=weeks, days=days, hours=hours)
    year, month = divmod(start.year * 12 + start.month - 1 + months, 12)
    return start.replace(year=year, month=month + 1, day=min(start.day, calendar.monthrange(year, month + 1)[1]))
