"""The tables of a micro-batch: the raw rows that are new, and the views' rows over the event times that these change.

The views' queries and the rule of versions are those of the batch: see `computing/versions.py`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.feature_tables import compute_spans, computed_rows
from gatehouse.features.computing.spans import END, Span, merged, shifted, spans_to_compute
from gatehouse.features.computing.versions import Earlier, next_table
from gatehouse.features.database import connect, open_tables
from gatehouse.features.definitions.repository import Repository, View, staged_by, tables_of
from gatehouse.features.table_files import Files
from gatehouse.online.streaming.batch_folder import newest_query
from gatehouse.store.database import quoted

MICROSECOND = timedelta(microseconds=1)
_AS_OF = re.compile(r"getvariable\s*\(\s*'as_of'\s*\)", re.IGNORECASE)


@dataclass(frozen=True)
class RawTables:
    """The raw tables after a micro-batch, by table: files of the snapshot, and files of rows that arrived after it."""

    snapshot: Mapping[str, Sequence[Path]]
    arrived: Mapping[str, Sequence[Path]]

    def query(self, repository: Repository, table: str) -> str:
        """SQL of a raw table; rows that arrived since the snapshot, `source.<table>`, replace those with their key."""
        source = f"SELECT * FROM source.{quoted(table)}"
        if not self.arrived.get(table):
            return source
        key = repository.streams[table].key
        arrived = newest_query(self.arrived[table], key)
        return (
            f"{source} AS stored ANTI JOIN ({arrived}) AS rows ON {_same_key(key)} UNION ALL BY NAME "
            f"SELECT * FROM ({arrived})"
        )


def streamed_views(repository: Repository, tables: Sequence[str], names: Sequence[str] = ()) -> list[View]:
    """The named views, or all that can be pushed from these tables.

    A view can be pushed if it reads one of the tables, is not static, and has a window. Raises ConfigurationError if
    there is none, or a named view cannot be pushed, with the reason.
    """
    reasons = {}
    for name, view in repository.views.items():
        if not set(tables_of(repository, [view.query])) & set(tables):
            reasons[name] = f"reads none of the streamed tables {', '.join(tables)}"
        elif view.spec.static:
            reasons[name] = "is static, so its rows have no time"
        elif view.spec.window is None:
            reasons[name] = "has no window, so the whole past would be read for every batch"
    unknown = {name: f"expected one of {', '.join(repository.views)}" for name in names if name not in repository.views}
    problems = {name: "expected a Stream with its key, found none" for name in tables if name not in repository.streams}
    problems |= {name: reason for name, reason in (reasons | unknown).items() if name in names}
    chosen = [view for name, view in repository.views.items() if name not in reasons and name in (names or [name])]
    if problems or not chosen:
        listed = "".join(f"\n  - {name}: {reason}" for name, reason in (problems or reasons).items())
        raise ConfigurationError(f"These cannot be pushed:{listed}")
    return chosen


def new_rows(
    repository: Repository, raw: RawTables, table: str, rows: pa.Table
) -> tuple[pa.Table, list[datetime] | None]:
    """The rows that differ from the stored ones, and the hours of event time that they change.

    A changed row also changes the hour of its earlier event time. The hours are None if a row has no event time.
    """
    with connect() as connection:
        open_tables(connection, {table: raw.snapshot[table]}, "source")
        connection.register("rows", rows)
        event = quoted(repository.sources[table].event_time)
        columns = ", ".join(map(quoted, rows.column_names))
        same_key = _same_key(repository.streams[table].key)
        stored = f"SELECT {columns} FROM ({raw.query(repository, table)}) AS stored SEMI JOIN rows ON {same_key}"
        connection.execute(f"CREATE TEMP TABLE replaced AS {stored}")
        new = connection.sql(f"SELECT {columns} FROM rows EXCEPT FROM replaced").to_arrow_table()
        connection.register("new", new)
        hours = connection.sql(
            f"SELECT DISTINCT time_bucket(INTERVAL 1 HOUR, {event}::TIMESTAMPTZ) FROM (FROM new UNION ALL "
            f"FROM replaced AS stored SEMI JOIN new AS rows ON {same_key}) ORDER BY ALL"
        ).fetchall()
    changed = [hour.astimezone(UTC) for (hour,) in hours if hour is not None]
    return new, changed if len(changed) == len(hours) else None


def next_tables(
    repository: Repository,
    views: Sequence[View],
    raw: RawTables,
    files: Mapping[str, Files],
    changed: Mapping[str, Sequence[datetime] | None],
    since: datetime,
    until: datetime,
    folder: Path,
) -> dict[str, Files]:
    """The files of every view's table at `until`, from `files`, those at `since`.

    All rows known until `since` stay; a row that is late is known from `until` on. `changed` has the hours of event
    time in which raw rows are new or changed, by table; None for any hour.
    """
    unsettled, plans = since + MICROSECOND, dict[str, list[Span]]()
    for view in views:
        hours = {table: changed[table] for table in tables_of(repository, [view.query]) if table in changed}
        spans = spans_to_compute(hours, repository.sources, view.spec.window)
        staged = [repository.staging[name] for name in staged_by(repository, [view.query])]
        if any(map(_AS_OF.search, [view.query, repository.macros, *staged])):
            # As time passes, rows of past events may appear, as far back as the view's window.
            spans.append(Span(shifted(unsettled, -(view.spec.window or timedelta(0))), END))
        elif spans:
            spans.append(Span(unsettled, END))
        plans[view.name] = merged(spans)
    result = dict(files)
    with connect() as connection:
        computed = compute_spans(
            connection,
            repository,
            {name: spans for name, spans in plans.items() if spans},
            until,
            raw.snapshot.__getitem__,
            lambda table: raw.query(repository, table),
        )
        for view in (repository.views[name] for name in computed):
            earlier = Earlier(files[view.name], files[view.name], unsettled)
            rows, target = computed_rows(view), folder / view.name
            written = next_table(connection, view, earlier, plans[view.name], rows, until, target)
            result[view.name] = {name: path for name, path in written.items() if isinstance(path, Path)}
    return result


def _same_key(key: Sequence[str]) -> str:
    return " AND ".join(f"stored.{quoted(name)} = rows.{quoted(name)}" for name in key)
