"""The pieces of feature tables: rows of views in a span of event times, and files that are put together of such rows.

A span's rows are written by the week from which they are known, as the files of a table are. So most files of a table
that is computed whole are those of one span; only weeks in which several spans have rows are merged.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path

import duckdb

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import keep_view, stage_tables
from gatehouse.features.computing.spans import Span, choose_span, rows_needed
from gatehouse.features.computing.versions import (
    Earlier,
    files_from,
    next_table,
    redefined_table,
    rows_in,
    write_rows,
)
from gatehouse.features.database import connect, empty_schemas, open_tables, rows_of, set_time
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.features.definitions.repository import Repository, View, check_out
from gatehouse.features.table_files import CORRECTED
from gatehouse.pieces.piece import KIND, piece
from gatehouse.store.database import quoted
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.identity import Spec
from gatehouse.store.manifest import Column, FileEntry
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore


class RawFiles(Spec):
    """The files of a raw table that a piece reads."""

    dataset: str
    paths: tuple[str, ...]


class RowsRequest(StageModel):
    """Rows to compute from `start` to `end`, both included, and the raw files with the rows that this needs."""

    definitions: str
    as_of: str
    start: datetime
    end: datetime
    tables: dict[str, RawFiles]


class SpanRequest(RowsRequest):
    """The views whose rows to compute."""

    views: tuple[str, ...]


class SpanResult(StageModel):
    """The artifact with the rows: for each view a folder of files, one for each week."""

    rows: str


class WindowRequest(SpanRequest):
    """The same, to compare with what comes out if the rows of `wider_start` to `wider_end` are read as well."""

    wider_start: datetime
    wider_end: datetime


class WindowResult(StageModel):
    """Nothing: a view that needs more than its window is an error."""


class Assembly(Spec):
    """Files to make of the parts of one view.

    `earlier` is the table to which rows of `spans` are added, whose rows were settled before `settled`. Without a
    `settled`, the view is computed whole, and only the corrected rows of an earlier table count.
    """

    view: str
    files: tuple[str, ...]
    parts: tuple[str, ...]
    spans: tuple[tuple[datetime, datetime], ...] = ()
    earlier: str = ""
    settled: datetime | None = None


class AssembleRequest(StageModel):
    """Tables, or some weeks of them, to put together."""

    definitions: str
    as_of: str
    tables: tuple[Assembly, ...]


@piece
def compute_span(request: SpanRequest, store: ArtifactStore) -> SpanResult:
    """Compute rows of views. Raises ConfigurationError naming the file whose SQL does not run."""
    files: dict[str, Path | FileEntry] = {}
    columns: dict[str, list[dict[str, object]]] = {}
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")

        def write(view: View) -> None:
            with connection.cursor() as own:
                written = write_rows(own, view, _rows(view), workspace / view.name)
                schema = own.sql(f"FROM {_rows(view)} LIMIT 0").to_arrow_table().schema
                own.execute(f"DROP TABLE {_rows(view)}")
            files.update({f"{view.name}/{name}": path for name, path in written.items()})
            columns[view.name] = [vars(Column(field.name, str(field.type), field.nullable)) for field in schema]

        # A table is written while the next one is computed, because writing alone does not keep all cores busy.
        with connect() as connection, ThreadPoolExecutor(1, "feature-tables") as writer:
            views = [repository.views[name] for name in request.views]
            stage_span(connection, store, repository, request, [view.query for view in views], longest_window(views))
            writing = []
            for view in views:
                keep_view(connection, repository, view, _rows(view))
                writing.append(writer.submit(write, view))
            for written in writing:
                written.result()
        return SpanResult(rows=_published(store, request, files, columns))


@piece
def check_windows(request: WindowRequest, store: ArtifactStore) -> WindowResult:
    """Compare the rows of views with those that come out if more rows are read than their windows say.

    Raises ConfigurationError with the view and its first row that differs.
    """
    wider = Span(request.wider_start, request.wider_end)
    with store.workspace() as workspace, connect() as connection:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        views = [repository.views[name] for name in request.views]
        queries, window = [view.query for view in views], longest_window(views)
        for schema, reading in (("narrow", None), ("wide", wider)):
            connection.execute(f"CREATE SCHEMA {schema}")
            stage_span(connection, store, repository, request, queries, window, reading)
            for view in views:
                keep_view(connection, repository, view, f"{schema}.{quoted(view.name)}")
        for view in views:
            name, spec = view.name, view.spec
            names = (*spec.entities, EVENT_TIMESTAMP)
            if shown := first_difference(connection, f"narrow.{quoted(name)}", f"wide.{quoted(name)}", names):
                raise ConfigurationError(
                    f"views/{name}.sql: expected rows that depend on source rows of at most {spec.window} before them "
                    f"and on no later ones, as the view's window and the leads of its sources say, found others: "
                    f"{unless_hidden(shown)}. Declare a longer window or lead, or leave the window out."
                )
    return WindowResult()


@piece
def assemble_tables(request: AssembleRequest, store: ArtifactStore) -> SpanResult:
    """Merge weeks in which several spans have rows, or add the rows of spans to an earlier table."""
    files: dict[str, Path | FileEntry] = {}
    with store.workspace() as workspace, connect() as connection:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        for table in request.tables:
            view, folder = repository.views[table.view], workspace / table.view
            names = {f"{table.view}/{name}" for name in table.files}
            computed = rows_of([path for part in table.parts for path in store.paths(part, names)])
            earlier = {entry.path: entry for entry in store.manifest(table.earlier).files} if table.earlier else {}
            spans = [Span(start, end) for start, end in table.spans]
            made: dict[str, Path | FileEntry]
            if table.settled is None:
                names = {name for name in earlier if name.startswith(CORRECTED)}
                corrected = store.paths(table.earlier, names) if names else []
                made = redefined_table(connection, view, corrected, computed, folder)
            else:
                kept = [entry.path for entry in files_from(earlier, spans[0].start)]
                paths = dict(zip(kept, store.paths(table.earlier, kept), strict=True))
                before, as_of = Earlier(earlier, paths, table.settled), datetime.fromisoformat(request.as_of)
                made = next_table(connection, view, before, spans, computed, as_of, folder)
            files |= {f"{table.view}/{name}": file for name, file in made.items()}
        return SpanResult(rows=_published(store, request, files, {}))


def stage_span(
    connection: duckdb.DuckDBPyConnection,
    store: ArtifactStore,
    repository: Repository,
    request: RowsRequest,
    queries: list[str],
    window: timedelta | None,
    reading: Span | None = None,
) -> None:
    """Create the staging tables of a piece, of the raw rows that `reading` needs, by default the piece's span."""
    span = Span(request.start, request.end)
    empty_schemas(connection)
    for table, files in request.tables.items():
        source = repository.sources.get(table)
        open_tables(connection, {table: store.paths(files.dataset, files.paths)}, "source")
        needed = rows_needed(reading or span, source, window) if source else "true"
        connection.execute(f"CREATE VIEW raw.{quoted(table)} AS SELECT * FROM source.{quoted(table)} WHERE {needed}")
    set_time(connection, "as_of", datetime.fromisoformat(request.as_of))
    choose_span(connection, span)
    stage_tables(connection, repository, queries)


def first_difference(connection: duckdb.DuckDBPyConnection, narrow: str, wide: str, names: Sequence[str]) -> str:
    """The columns `names` of the first row that only one of two tables has; empty if they have the same rows."""
    differing = f"((FROM {narrow} EXCEPT ALL FROM {wide}) UNION ALL (FROM {wide} EXCEPT ALL FROM {narrow}))"
    rows = connection.sql(f"FROM {differing} ORDER BY ALL LIMIT 1").to_arrow_table().to_pylist()
    return "first " + ", ".join(f"{name} {rows[0][name]}" for name in names) if rows else ""


def longest_window(views: Sequence[View]) -> timedelta | None:
    """The longest window of views that are not static; None where one has none, or there is no such view."""
    windows = [view.spec.window for view in views if not view.spec.static]
    return None if None in windows else max((length for length in windows if length is not None), default=None)


def _published(
    store: ArtifactStore,
    request: SpanRequest | AssembleRequest,
    files: dict[str, Path | FileEntry],
    columns: dict[str, list[dict[str, object]]],
) -> str:
    inputs = {"definitions": request.definitions}
    if isinstance(request, SpanRequest):
        inputs |= {f"raw:{table}": raw.dataset for table, raw in request.tables.items()}
    for made in request.tables if isinstance(request, AssembleRequest) else ():  # For erasures; parts may be collected.
        inputs |= {role: source for part in made.parts for role, source in store.manifest(part).derived_from.items()}
        inputs |= {f"earlier:{made.view}": made.earlier} if made.earlier else {}
    rows = {name: rows_in(file) for name, file in files.items()}
    origin = {"columns": columns}
    return str(store.publish(KIND, "features", files, rows_per_file=rows, derived_from=inputs, details=origin))


def _rows(view: View) -> str:
    """Name of the table with a view's rows that are not written to files yet."""
    return f"features.{quoted(view.name)}"
