"""The pieces of a training set: the entity rows, and the join of features to some of them.

Entity rows are ordered by the time of their decision, and a piece has so many of them in a row. So it reads feature
tables only from its first decision, less the time to live, to its last. Each piece is a file of the training set, and
its number of rows therefore is fixed.
"""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.splitting.publication import publish_rows
from gatehouse.features.computing.labels import entity_rows
from gatehouse.features.computing.spans import BEGINNING, shifted
from gatehouse.features.computing.versions import files_from
from gatehouse.features.database import connect, open_tables, set_time
from gatehouse.features.definitions.repository import View, check_out
from gatehouse.features.point_in_time.feast_store import applied, retrieve
from gatehouse.features.table_files import Files, raw_tables, view_tables
from gatehouse.pieces.piece import KIND, piece
from gatehouse.store.stage import StageModel
from gatehouse.store.store import ArtifactStore

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ROWS = 1 << 19
"""The number of entity rows of a piece."""


class DecisionsRequest(StageModel):
    """The decisions of a snapshot with labels that are known at `as_of`; a part has `rows` of them."""

    snapshot: str
    definitions: str
    as_of: str
    rows: int


class DecisionsResult(StageModel):
    """The artifacts with the entity rows, in order, and how many were set aside, by reason."""

    parts: tuple[str, ...]
    set_aside: dict[str, int]


class JoinRequest(StageModel):
    """Entity rows to which the features of a service are joined."""

    rows: str
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
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        open_tables(connection, raw_tables(store, request.snapshot))
        set_time(connection, "as_of", datetime.fromisoformat(request.as_of))
        rows, set_aside = entity_rows(connection, repository)
    origin = {"snapshot": request.snapshot, "definitions": request.definitions}
    parts = [rows.slice(start, request.rows) for start in range(0, max(rows.num_rows, 1), request.rows)]
    published = [publish_rows(store, KIND, "decisions", part, {"part": n}, origin) for n, part in enumerate(parts)]
    return DecisionsResult(parts=tuple(map(str, published)), set_aside=set_aside)


@piece
def join(request: JoinRequest, store: ArtifactStore) -> JoinResult:
    """Join features to entity rows point-in-time, through Feast. Raises ConfigurationError as `retrieve`."""
    rows = pq.read_table(store.paths(request.rows))
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        tables = view_tables(store, request.feature_tables)
        files = {name: _usable(store, tables[name], view, rows) for name, view in repository.views.items()}
        with applied(repository, files, workspace) as feast:
            training_set = retrieve(feast, repository, request.service, rows, workspace)
    origin = store.manifest(request.rows).derived_from | {"feature_tables": request.feature_tables}
    return JoinResult(
        joined=str(publish_rows(store, KIND, "joined", training_set.table, {}, origin)),
        views={name: tuple(features) for name, features in training_set.views.items()},
        numeric=tuple(training_set.numeric),
        categorical=tuple(training_set.categorical),
    )


def _usable(store: ArtifactStore, table: str, view: View, rows: pa.Table) -> Files:
    """The verified files of a view's table that can have rows for these entity rows, at least one."""
    times = pc.min_max(rows["decision_time"].cast(pa.int64())).as_py() if rows.num_rows else {"min": 0, "max": 0}
    first, last = (shifted(_EPOCH, timedelta(microseconds=times[end])) for end in ("min", "max"))
    start = shifted(first, -view.spec.ttl) if view.spec.ttl else BEGINNING
    entries = {entry.path: entry for entry in store.manifest(table).files}
    chosen = files_from(entries, start, None if view.spec.event_time_only else last) or [*entries.values()][:1]
    names = [entry.path for entry in chosen]
    return dict(zip(names, store.paths(table, names), strict=True))
