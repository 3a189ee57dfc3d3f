"""Finds the event times of a view to compute again: those that new or changed source rows can affect."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import duckdb

from gatehouse.features.database import rows_of, set_time
from gatehouse.features.definitions.declarations import Source
from gatehouse.store.database import quoted, time_literal
from gatehouse.store.reference import Reference
from gatehouse.store.store import ArtifactStore

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
END = datetime(9999, 1, 1, tzinfo=UTC)
_HOUR = timedelta(hours=1)


@dataclass(frozen=True, order=True)
class Span:
    """Event times from `start` to `end`, both included."""

    start: datetime
    end: datetime


ALL_TIME = Span(BEGINNING, END)


def changed_hours(
    connection: duckdb.DuckDBPyConnection, store: ArtifactStore, before: str, after: str, source: Source
) -> list[datetime] | None:
    """The hours of event time in which rows of a table are new, gone or changed; None where a row has no time.

    Files that both versions hold are not read. The other files are compared hour by hour: by the number of rows, and by
    the sum of the hashes of all their columns.
    """
    if before == after:
        return []
    entries = [{entry.sha256: entry for entry in store.manifest(dataset).files} for dataset in (before, after)]
    # Files are counted, because a table can hold the same file twice.
    counts = [Counter(entry.sha256 for entry in store.manifest(dataset).files) for dataset in (before, after)]
    files = [
        [store.verified_path(Reference.parse(dataset), own[digest]) for digest in surplus.elements()]
        for dataset, own, surplus in (
            (before, entries[0], counts[0] - counts[1]),
            (after, entries[1], counts[1] - counts[0]),
        )
    ]
    store.require_readable(before)
    # Times without a zone are faster: with a zone, DuckDB asks a calendar for every row.
    utc = f"make_timestamp(epoch_us({quoted(source.event_time)}::TIMESTAMPTZ))"
    sides = " UNION ALL ".join(
        f"SELECT {weight} AS side, date_trunc('hour', {utc}) AS hour, hash(__row)::HUGEINT AS hash "
        f"FROM {rows_of(paths)} AS __row"
        for paths, weight in zip(files, (-1, 1), strict=True)
        if paths
    )
    if not sides:
        return []
    query = (
        f"SELECT {_within_calendar('hour', None)} FROM ({sides}) "
        "GROUP BY hour HAVING sum(side) <> 0 OR sum(side * hash) <> 0 ORDER BY hour"
    )
    hours = [row[0] for row in connection.execute(query).fetchall()]
    return None if None in hours else [hour.replace(tzinfo=UTC) for hour in hours]


def newest_event(
    connection: duckdb.DuckDBPyConnection, store: ArtifactStore, dataset: str, source: Source
) -> datetime | None:
    """The newest event time of a table; None where it has none."""
    newest = f"SELECT max({quoted(source.event_time)})::TIMESTAMPTZ AS newest FROM {rows_of(store.paths(dataset))}"
    query = f"SELECT {_within_calendar('newest', UTC)} FROM ({newest})"
    newest_event: datetime | None = connection.execute(query).fetchall()[0][0]
    return newest_event


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


def rows_needed(span: Span, source: Source, window: timedelta | None) -> str:
    """SQL condition for the rows of a source that the event times of a span can depend on."""
    column = quoted(source.event_time)
    start = BEGINNING if window is None else shifted(span.start, -window)
    end = shifted(span.end, source.lead)
    bounds = [f"{column} >= {time_literal(start)}"] if start > BEGINNING else []
    bounds += [f"{column} <= {time_literal(end)}"] if end < END else []
    return f"({' AND '.join(bounds)}) OR {column} IS NULL" if bounds else "true"


def choose_span(connection: duckdb.DuckDBPyConnection, span: Span) -> None:
    """Set the variables `from` and `until`: `compute_view` gives the rows with event times between them."""
    set_time(connection, "from", span.start if span.start > BEGINNING else None)
    set_time(connection, "until", span.end if span.end < END else None)


def _within_calendar(column: str, zone: tzinfo | None) -> str:
    """SQL of a time, limited to the years that Python's datetime can hold. Null stays null."""
    first, last = (time_literal(moment.replace(tzinfo=zone)) for moment in (BEGINNING, END))
    return f"if({column} IS NULL, NULL, least(greatest({column}, {first}), {last}))"
