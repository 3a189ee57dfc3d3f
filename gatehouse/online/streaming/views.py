"""Runs the queries of a repository's views on a micro-batch, over the event times that its rows can change."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import compute_views
from gatehouse.features.computing.spans import END, Span, choose_span, merged, rows_needed, shifted, spans_to_compute
from gatehouse.features.database import connect, open_tables, quoted, set_time
from gatehouse.features.definitions.repository import Repository, View, staged_by, tables_of
from gatehouse.online.streaming.batch_folder import newest_query

MICROSECOND = timedelta(microseconds=1)
_AS_OF = re.compile(r"getvariable\s*\(\s*'as_of'\s*\)", re.IGNORECASE)


@dataclass(frozen=True)
class RawTables:
    """The raw tables after a micro-batch, by table: files of the snapshot, and files of rows that arrived after it."""

    snapshot: Mapping[str, Sequence[Path]]
    arrived: Mapping[str, Sequence[Path]]


def streamed_views(repository: Repository, tables: Sequence[str], names: Sequence[str] = ()) -> list[View]:
    """The named views, or all that can be pushed from these tables.

    A view can be pushed if it reads one of the tables, is not static, and has a window.

    Raises:
        ConfigurationError: if there is none, or a named view cannot be pushed, with the reason.
    """
    problems = [
        f"definitions.py: {table}: expected a Stream with its key, found none"
        for table in tables
        if table not in repository.streams
    ]
    reasons = {name: _not_streamed(repository, view, tables) for name, view in repository.views.items()}
    problems += [f"no view {name!r}: expected {', '.join(repository.views)}" for name in names if name not in reasons]
    problems += [f"{name}: {reasons[name]}" for name in names if reasons.get(name)]
    chosen = [view for name, view in repository.views.items() if (name in names or not names) and not reasons[name]]
    if problems or not chosen:
        listed = problems or [f"{name}: {reason}" for name, reason in reasons.items()]
        raise ConfigurationError("These cannot be pushed:" + "".join(f"\n  - {text}" for text in listed))
    return chosen


def _not_streamed(repository: Repository, view: View, tables: Sequence[str]) -> str:
    if not set(tables_of(repository, [view.query])) & set(tables):
        return f"reads none of the streamed tables {', '.join(tables)}"
    if view.spec.static:
        return "is static, so its rows have no time"
    if view.spec.window is None:
        return "has no window, so the whole past would be read for every batch: state how far its query looks back"
    return ""


def depends_on_time(repository: Repository, view: View) -> bool:
    """Whether a view's rows can change without new source rows, because its SQL reads `as_of`."""
    texts = [view.query, repository.macros]
    texts += [repository.staging[name] for name in staged_by(repository, [view.query])]
    return any(_AS_OF.search(text) for text in texts)


def spans_of(
    repository: Repository, view: View, hours: Mapping[str, Sequence[datetime] | None], since: datetime
) -> list[Span]:
    """The event times of a view to compute again.

    Args:
        repository: The definitions.
        view: The view.
        hours: Hours of event time in which rows are new or changed, by table.
        since: Rows that become known after this time are not settled.
    """
    tables = tables_of(repository, [view.query])
    changed = spans_to_compute(
        {table: hours[table] for table in tables if table in hours}, repository.sources, view.spec.window
    )
    if depends_on_time(repository, view):
        # As time passes, rows of past events may appear, as far back as the view's window.
        return merged([*changed, Span(shifted(since, -(view.spec.window or timedelta(0))), END)])
    return merged([*changed, Span(since, END)]) if changed else changed


def compute_spans(
    repository: Repository, raw: RawTables, plans: Mapping[str, Sequence[Span]], as_of: datetime
) -> dict[str, pa.Table]:
    """Compute the rows of views in the spans of their plans, as known at `as_of`."""
    together: dict[Span, list[str]] = defaultdict(list)
    for name, spans in plans.items():
        for span in spans:
            together[span].append(name)
    found: dict[str, list[pa.Table]] = defaultdict(list)
    for span, names in sorted(together.items()):
        for name, table in _compute_span(repository, raw, span, names, as_of).items():
            found[name].append(table)
    return {name: pa.concat_tables(tables) for name, tables in found.items()}


def _compute_span(
    repository: Repository, raw: RawTables, span: Span, names: Sequence[str], as_of: datetime
) -> dict[str, pa.Table]:
    windows = [window for name in names if (window := repository.views[name].spec.window) is not None]
    with connect() as connection:
        tables = tables_of(repository, [repository.views[name].query for name in names])
        open_tables(connection, {table: raw.snapshot[table] for table in tables}, "source")
        for table in tables:
            source = repository.sources.get(table)
            needed = rows_needed(span, source, max(windows)) if source else "true"
            rows = _rows(repository, raw, table)
            connection.execute(f"CREATE VIEW raw.{quoted(table)} AS SELECT * FROM ({rows}) WHERE {needed}")
        set_time(connection, "as_of", as_of)
        choose_span(connection, span)
        return compute_views(connection, repository, names)


def _rows(repository: Repository, raw: RawTables, table: str) -> str:
    """SQL of a raw table; rows that arrived since the snapshot replace rows with the same key."""
    parts = raw.arrived.get(table, ())
    source = f"SELECT * FROM source.{quoted(table)}"
    if not parts:
        return source
    key = repository.streams[table].key
    arrived = newest_query(parts, key)
    return f"{source} AS one ANTI JOIN ({arrived}) AS other ON {_same(key)} UNION ALL BY NAME SELECT * FROM ({arrived})"


def _same(key: Sequence[str]) -> str:
    return " AND ".join(f"one.{quoted(name)} = other.{quoted(name)}" for name in key)


def new_rows(
    repository: Repository, raw: RawTables, table: str, rows: pa.Table
) -> tuple[pa.Table, list[datetime] | None]:
    """The rows that differ from the stored ones, and the hours of event time that they change.

    A changed row also changes the hour of its earlier event time. The hours are None if a row has no event time.
    """
    with connect() as connection:
        open_tables(connection, {table: raw.snapshot[table]}, "source")
        connection.register("rows", rows)
        match, event = _same(repository.streams[table].key), quoted(repository.sources[table].event_time)
        whole = _rows(repository, raw, table)
        connection.execute(
            f"CREATE TEMP TABLE held AS SELECT * FROM ({whole}) AS one SEMI JOIN rows AS other ON {match}"
        )
        columns = ", ".join(map(quoted, rows.column_names))
        new = connection.sql(f"SELECT {columns} FROM rows EXCEPT SELECT {columns} FROM held").to_arrow_table()
        connection.register("fresh", new)
        replaced = f"SELECT {columns} FROM held AS one SEMI JOIN fresh AS other ON {match}"
        hours = connection.sql(
            f"SELECT DISTINCT time_bucket(INTERVAL 1 HOUR, {event}::TIMESTAMPTZ) AS hour FROM "
            f"(SELECT {columns} FROM fresh UNION ALL {replaced}) ORDER BY hour"
        ).fetchall()
    found = [None if hour is None else hour.astimezone(UTC) for (hour,) in hours]
    return new, None if None in found else [hour for hour in found if hour is not None]
