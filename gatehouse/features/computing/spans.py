"""Finds the event times of a view to compute again: those that new or changed source rows can affect."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import duckdb
import numpy as np
import numpy.typing as npt

from gatehouse.features.database import set_time
from gatehouse.features.definitions.declarations import Source
from gatehouse.store.database import quoted, time_literal

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
END = datetime(9999, 1, 1, tzinfo=UTC)
Times = npt.NDArray[np.datetime64]
_HOUR, _TICK = timedelta(hours=1), timedelta(microseconds=1)


@dataclass(frozen=True, order=True)
class Span:
    """Event times from `start` to `end`, both included."""

    start: datetime
    end: datetime


ALL_TIME = Span(BEGINNING, END)


@dataclass(frozen=True)
class FileHours:
    """The number of rows of a file, and the sum of the hashes of all their columns, by hour; and its newest event.

    The hour is that of the event, in UTC; None where a row has no time.
    """

    path: str
    sha256: str
    rows: Mapping[datetime | None, int]
    hashes: Mapping[datetime | None, int]
    newest: datetime | None

    @property
    def between(self) -> tuple[datetime, datetime]:
        """The first and the last hour that it may have rows of: all time where a row has no time."""
        if None in self.rows or not self.rows:
            return BEGINNING, END
        hours = [hour for hour in self.rows if hour]
        return min(hours), max(hours)


def changed_hours(before: Sequence[FileHours], after: Sequence[FileHours]) -> list[datetime] | None:
    """The hours of event time in which rows of a table are new, gone or changed; None where such a row has no time.

    The files of both versions are compared by the number of rows, and by the sum of the hashes of all their columns.
    """
    # Files are counted, because a table can hold the same file twice.
    surplus = Counter(file.sha256 for file in after)
    surplus.subtract(file.sha256 for file in before)
    rows, hashes = Counter[datetime | None](), Counter[datetime | None]()
    for file in {file.sha256: file for file in (*before, *after)}.values():
        for hour, count in file.rows.items():
            rows[hour] += surplus[file.sha256] * count
            hashes[hour] += surplus[file.sha256] * file.hashes[hour]
    hours = [hour for hour in rows if rows[hour] or hashes[hour]]
    return None if None in hours else sorted(hour for hour in hours if hour is not None)


def newest_event(files: Iterable[FileHours]) -> datetime | None:
    """The newest event time of a table; None where it has none."""
    return max((file.newest for file in files if file.newest is not None), default=None)


def divided(span: Span, tables: Iterable[Iterable[FileHours]], rows: int) -> list[Span]:
    """The span, divided at full hours into parts in which tables have about as many rows, and at most about `rows`."""
    hours = Counter[datetime]()
    for file in (file for files in tables for file in files):
        hours.update({hour: count for hour, count in file.rows.items() if hour and span.start <= hour <= span.end})
    total = hours.total()
    parts = -(-total // rows)
    starts, passed = [span.start], 0
    for hour in sorted(hours):
        if passed * parts >= len(starts) * total and hour > starts[-1]:
            starts.append(hour)
        passed += hours[hour]
    return [Span(start, end - _TICK) for start, end in pairwise(starts)] + [Span(starts[-1], span.end)]


def hours_between(files: Sequence[FileHours]) -> Times:
    """The first and the last hour of each file, datetime64[us] in UTC, shape (files, 2)."""
    bounds = [[bound.replace(tzinfo=None) for bound in file.between] for file in files]
    return np.array(bounds, "datetime64[us]").reshape(-1, 2)


def needed_files(
    files: Sequence[FileHours], between: Times, span: Span, source: Source, window: timedelta | None
) -> list[FileHours]:
    """The files with rows that `rows_needed` asks for; `between` has the hours of each, as `hours_between` gives them.

    Every span asks this of every file of a table, and few files are near it.
    """
    start, end = reach(span, source, window)
    start -= _HOUR
    first, last = (np.datetime64(moment.replace(tzinfo=None), "us") for moment in (start, end))
    near = np.flatnonzero((first < between[:, 1]) & (between[:, 0] <= last)).tolist()
    return [files[number] for number in near if any(hour is None or start < hour <= end for hour in files[number].rows)]


def spans_to_compute(
    changed: Mapping[str, Sequence[datetime] | None], sources: Mapping[str, Source], window: timedelta | None
) -> list[Span]:
    """The event times of a view that changed source rows can affect, as few spans as possible.

    A row with time t affects event times from `lead` before t until `window` after t. `changed` has the changed hours
    by table; None if the whole table counts as changed.
    """
    spans: list[Span] = []
    for table, hours in changed.items():
        if hours is None:
            return [ALL_TIME]
        for hour in hours:
            end = END if window is None else shifted(hour, _HOUR + window)
            spans.append(Span(shifted(hour, -sources[table].lead), end))
    return merged(spans)


def shifted(moment: datetime, by: timedelta) -> datetime:
    """`moment + by`; the first or last possible time where the sum is out of range."""
    if by < timedelta(0):
        return max(moment + max(by, BEGINNING - moment), BEGINNING)
    return min(moment + min(by, END - moment), END)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, where spans that overlap or touch are joined."""
    spans_in_order: list[Span] = []
    for span in sorted(spans):
        if spans_in_order and span.start <= spans_in_order[-1].end:
            spans_in_order[-1] = Span(spans_in_order[-1].start, max(spans_in_order[-1].end, span.end))
        else:
            spans_in_order.append(span)
    return spans_in_order


def reach(span: Span, source: Source, window: timedelta | None) -> tuple[datetime, datetime]:
    """The first and the last event time of a source that the event times of a span can depend on."""
    return BEGINNING if window is None else shifted(span.start, -window), shifted(span.end, source.lead)


def rows_needed(span: Span, source: Source, window: timedelta | None) -> str:
    """SQL condition for the rows of a source that the event times of a span can depend on."""
    column = quoted(source.event_time)
    start, end = reach(span, source, window)
    bounds = [f"{column} >= {time_literal(start)}"] if start > BEGINNING else []
    bounds += [f"{column} <= {time_literal(end)}"] if end < END else []
    return f"({' AND '.join(bounds)}) OR {column} IS NULL" if bounds else "true"


def choose_span(connection: duckdb.DuckDBPyConnection, span: Span) -> None:
    """Set the variables `from` and `until`: `compute_view` gives the rows with event times between them."""
    set_time(connection, "from", span.start if span.start > BEGINNING else None)
    set_time(connection, "until", span.end if span.end < END else None)
