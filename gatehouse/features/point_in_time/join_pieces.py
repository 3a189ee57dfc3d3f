"""The pieces of a training set: the entity rows of spans of decisions, and the join of features to some of them.

Entity rows are ordered by the time of their decision, and a piece of the join has so many of them in a row, whatever
spans they come from. So it reads feature tables only from its first decision, less the time to live, to its last. Each
such piece is a file of the training set, and its number of rows therefore is fixed.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.splitting.publication import publish_rows
from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.labels import labelled_rows
from gatehouse.features.computing.sources import Sources
from gatehouse.features.computing.spans import ALL_TIME, BEGINNING, Span, shifted
from gatehouse.features.computing.table_pieces import RowsRequest, WindowResult, first_difference, stage_span
from gatehouse.features.computing.versions import files_from
from gatehouse.features.database import connect
from gatehouse.features.definitions.repository import Repository, View, check_out
from gatehouse.features.table_files import Files, view_tables
from gatehouse.pieces.piece import KIND, Call, piece
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.identity import Spec
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = 1 << 19
"""The number of entity rows of a piece."""


class DecisionsRequest(RowsRequest):
    """The decisions of a span with labels that are known at `as_of`, of a snapshot; a part has at most `rows`."""

    snapshot: str
    rows: int


class DecisionsResult(StageModel):
    """The artifacts with the entity rows, in order, and how many were set aside, by reason."""

    parts: tuple[str, ...]
    set_aside: dict[str, int]


class LabelWindowRequest(RowsRequest):
    """Decisions to compare with what comes out if the raw rows of `wider_start` to `wider_end` are read as well."""

    wider_start: datetime
    wider_end: datetime


class Range(Spec):
    """The entity rows from `start` to `stop`, not included, of an artifact."""

    rows: str
    start: int
    stop: int


class JoinRequest(StageModel):
    """Entity rows, at least one range, to which the features of a service are joined."""

    rows: tuple[Range, ...]
    feature_tables: str
    definitions: str
    service: str


class JoinResult(StageModel):
    """The artifact with the joined rows, the features by view, and which of them are numbers and which are texts."""

    joined: str
    views: dict[str, tuple[str, ...]]
    numeric: tuple[str, ...]
    categorical: tuple[str, ...]


@piece
def decide(request: DecisionsRequest, store: ArtifactStore) -> DecisionsResult:
    """Publish the entity rows in parts; one part if there are none."""
    with store.workspace() as workspace, connect() as connection:
        rows, set_aside = _decided(connection, store, request, workspace)
    origin = {"snapshot": request.snapshot, "definitions": request.definitions}
    parts = [rows.slice(start, request.rows) for start in range(0, max(rows.num_rows, 1), request.rows)]
    published = [publish_rows(store, KIND, "decisions", part, {"part": n}, origin) for n, part in enumerate(parts)]
    return DecisionsResult(parts=tuple(map(str, published)), set_aside=set_aside)


@piece
def check_label(request: LabelWindowRequest, store: ArtifactStore) -> WindowResult:
    """Compare decisions with those that come out if more raw rows are read than the label's window and lead say.

    Raises ConfigurationError with the first decision that differs.
    """
    wider = Span(request.wider_start, request.wider_end)
    with store.workspace() as workspace, connect() as connection:
        for name, reading in (("narrow", None), ("wide", wider)):
            rows, _ = _decided(connection, store, request, workspace / name, reading)
            connection.register(name, rows)
        label = check_out(store, request.definitions, workspace / "feature_repo").label
        if shown := first_difference(connection, "narrow", "wide", (*label.entities, "decision_time")):
            raise ConfigurationError(
                f"labels/{label.name}.sql: expected rows that depend on source rows of at most {label.window} before "
                f"their decision and {label.lead} after it, as the label's window and lead say, found others: "
                f"{unless_hidden(shown)}. Declare a longer window or lead, or leave the window out."
            )
    return WindowResult()


def entity_row_pieces(
    store: ArtifactStore, repository: Repository, snapshot: str, definitions: str, as_of: str, rows: int
) -> list[Call]:
    """The pieces with the entity rows of a snapshot, in order; where there are several, one checks the label's window.

    Raises ConfigurationError if the label reads a table that the snapshot lacks.
    """
    repository, label, queries = repository.of_label, repository.label, [repository.entity_rows]
    datasets = store.manifest(snapshot).derived_from
    sources = Sources.of(store, repository, datasets, datetime.fromisoformat(as_of), queries)
    spans = [ALL_TIME]
    if label.window is not None and not sources.one_piece:
        sources = sources.counted()
        spans = sources.divided(queries)

    def body(span: Span, reading: Span) -> dict[str, Any]:
        files = sources.files(queries, label.window, reading)
        return {"definitions": definitions, "as_of": as_of, "start": span.start, "end": span.end, "tables": files}

    calls = list[Call]()
    if len(spans) > 1:
        middle, wider = sources.sample(queries)
        sample = LabelWindowRequest(**body(middle, wider), wider_start=wider.start, wider_end=wider.end)
        calls.append((check_label, sample))
    return [*calls, *((decide, DecisionsRequest(**body(span, span), snapshot=snapshot, rows=rows)) for span in spans)]


def ranges(store: ArtifactStore, parts: Iterable[str], rows: int) -> list[tuple[Range, ...]]:
    """The ranges of each piece of the join: all rows of the parts in order, `rows` a piece; one if there are none."""
    pieces, room = [list[Range]()], rows
    for part in parts:
        start, total = 0, store.manifest(part).rows or 0
        while start < total:
            if not room:
                pieces.append([])
                room = rows
            stop = min(start + room, total)
            pieces[-1].append(Range(rows=part, start=start, stop=stop))
            room -= stop - start
            start = stop
        first = Range(rows=part, start=0, stop=0)
    return [tuple(piece or [first]) for piece in pieces]


@piece
def join(request: JoinRequest, store: ArtifactStore) -> JoinResult:
    """Join features to entity rows point-in-time, through Feast. Raises ConfigurationError as `retrieve`."""
    # Feast takes a second to import, which the workers that find entity rows need not spend.
    from gatehouse.features.point_in_time.feast_store import applied, retrieve

    parts = [pq.read_table(store.paths(part.rows)).slice(part.start, part.stop - part.start) for part in request.rows]
    rows = pa.concat_tables(parts).combine_chunks()
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        tables = view_tables(store, request.feature_tables)
        files = {name: _usable(store, tables[name], view, rows) for name, view in repository.views.items()}
        with applied(repository, files, workspace) as feast:
            training_set = retrieve(feast, repository, request.service, rows, workspace)
    origin = store.manifest(request.rows[0].rows).derived_from | {"feature_tables": request.feature_tables}
    return JoinResult(
        joined=str(publish_rows(store, KIND, "joined", training_set.table, {}, origin)),
        views={name: tuple(features) for name, features in training_set.views.items()},
        numeric=tuple(training_set.numeric),
        categorical=tuple(training_set.categorical),
    )


def _decided(
    connection: duckdb.DuckDBPyConnection,
    store: ArtifactStore,
    request: RowsRequest,
    workspace: Path,
    reading: Span | None = None,
) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows of a span, as `labelled_rows`."""
    repository = check_out(store, request.definitions, workspace / "feature_repo").of_label
    queries, window = [repository.entity_rows], repository.label.window
    stage_span(connection, store, repository, request, queries, window, reading)
    return labelled_rows(connection, repository)


def _usable(store: ArtifactStore, table: str, view: View, rows: pa.Table) -> Files:
    """The verified files of a view's table that can have rows for these entity rows, at least one."""
    times = pc.min_max(rows["decision_time"].cast(pa.int64())).as_py() if rows.num_rows else {"min": 0, "max": 0}
    first, last = (shifted(_EPOCH, timedelta(microseconds=times[end])) for end in ("min", "max"))
    start = shifted(first, -view.spec.ttl) if view.spec.ttl else BEGINNING
    entries = {entry.path: entry for entry in store.manifest(table).files}
    chosen = files_from(entries, start, None if view.spec.event_time_only else last) or [*entries.values()][:1]
    names = [entry.path for entry in chosen]
    return dict(zip(names, store.paths(table, names), strict=True))
