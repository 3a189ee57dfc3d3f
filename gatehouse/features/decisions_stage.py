"""The stage that retrieves rows to score, with the features known at each row's time; their labels are left out.

The rows are decisions of the label view, of a time span or without a label yet, or keys and times of a user.
"""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.configuration.times import in_utc
from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import casts, require_columns, table_of
from gatehouse.features.computing.labels import UNLABELLED, labelled_rows
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.exact import TIME, cast_column, row_of
from gatehouse.features.point_in_time.entity_file import read_entity_rows
from gatehouse.store.database import quoted, text_literal, time_literal
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.repeatable_sql import repeatable
from gatehouse.store.stage import CONTENTS, StageModel, stage
from gatehouse.store.store import ArtifactStore

DECISION_TIME = "decision_time"


def decided_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> pa.Table:
    """The decisions that the label's query of entity rows gives, in the order of their time.

    Three variables of the connection limit the time: from `decided_since` on, before `decided_until`, and not after
    `as_of`. The first two may be unset. The columns are the keys, decision_time, and the request values of on-demand
    views. The staging tables must exist. Raises ConfigurationError if the query does not run or lacks a column.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    require_columns(connection, repository.entity_rows, where, [*_types(repository), label.decision_time])
    query = repeatable(connection, repository.entity_rows, where, repository.macros)
    timed = f"SELECT *, {quoted(label.decision_time)}::TIMESTAMPTZ AS __decided FROM (\n{query}\n)"
    return table_of(
        connection,
        f"SELECT {_columns(repository)} FROM ({timed}) WHERE __decided <= getvariable('as_of')::TIMESTAMPTZ "
        "AND coalesce(__decided < getvariable('decided_until')::TIMESTAMPTZ, true) "
        "AND coalesce(__decided >= getvariable('decided_since')::TIMESTAMPTZ, true) "
        f"ORDER BY __decided, {', '.join(map(quoted, label.entities))}",
        where,
    )


def rows_of_file(
    connection: duckdb.DuckDBPyConnection, repository: Repository, path: Path, as_of: datetime
) -> pa.Table:
    """Read the rows of a file, in the columns and order of `decided_rows`; other columns of the file are ignored.

    Raises ConfigurationError if the file cannot be read, or lacks a column; or if a row has a value of another type,
    lacks a key or a time, is after `as_of`, or occurs twice.
    """
    keys = {key: repository.entities[key] for key in repository.label.entities}
    values = repository.request_values()
    rows = read_entity_rows(path, keys, values, DECISION_TIME)
    expected = [*keys, DECISION_TIME, *values]
    if missing := [name for name in expected if name not in rows.column_names]:
        raise ConfigurationError(
            f"{path.name}: expected the columns {', '.join(expected)}, found {', '.join(rows.column_names)}: "
            f"{', '.join(missing)} is missing."
        )
    times = cast_column(rows[DECISION_TIME], TIME, row_of(f"{path.name}: {DECISION_TIME}"))
    connection.register("file_rows", rows.set_column(rows.column_names.index(DECISION_TIME), DECISION_TIME, times))
    columns = ", ".join([*map(quoted, (*keys, DECISION_TIME)), *casts(values)])
    order = ", ".join([DECISION_TIME, *map(quoted, keys)])
    rows = table_of(connection, f"SELECT {columns} FROM file_rows ORDER BY {order}", path.name)
    connection.register("requested", rows)
    if faults := [*_faults(connection, [*keys, DECISION_TIME], as_of)]:
        raise ConfigurationError(f"{path.name}: {' '.join(faults)}")
    return rows


def _faults(connection: duckdb.DuckDBPyConnection, columns: list[str], as_of: datetime) -> Iterator[str]:
    """A sentence for each problem of the rows in `requested`, with the first such row."""
    names, until = ", ".join(map(quoted, columns)), as_of.isoformat()
    faults = {
        "lack a key or a time": f"NOT ({' AND '.join(f'{quoted(name)} IS NOT NULL' for name in columns)})",
        f"are after {until}, the newest time that the snapshot covers": f"{DECISION_TIME} > {time_literal(as_of)}",
        "repeat a key and time": f"row_number() OVER (PARTITION BY {names}) > 1",
    }
    for fault, condition in faults.items():
        wrong = f"SELECT {names} FROM (SELECT *, {condition} AS __wrong FROM requested) WHERE __wrong"
        rows = connection.sql(f"{wrong} ORDER BY {DECISION_TIME}, {names}").to_arrow_table()
        if rows.num_rows:
            first = ", ".join(f"{name}={value}" for name, value in rows.slice(0, 1).to_pylist()[0].items())
            yield f"Rows that {fault}: {rows.num_rows:,}, {unless_hidden(f'the first {first}')}."


def unlabelled_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> pa.Table:
    """Decisions up to the variable `as_of` whose label is unknown or not final then; columns as in `decided_rows`.

    Decisions that the label view itself sets aside, such as cancelled flights, are left out. The staging tables must
    exist. Raises as `labelled_rows`.
    """
    labelled_rows(connection, repository)
    return table_of(
        connection,
        f"SELECT {_columns(repository)} FROM entity_rows WHERE __decided <= getvariable('as_of')::TIMESTAMPTZ "
        f"AND __reason IN ({', '.join(map(text_literal, UNLABELLED))}) "
        f"ORDER BY __decided, {', '.join(map(quoted, repository.label.entities))}",
        f"labels/{repository.label.name}.sql",
    )


def _types(repository: Repository) -> dict[str, str]:
    """The type of each key, and of each request value that on-demand views read."""
    return {key: repository.entities[key] for key in repository.label.entities} | repository.request_values()


def _columns(repository: Repository) -> str:
    types = _types(repository)
    columns = casts(types)
    columns.insert(len(repository.label.entities), "__decided AS decision_time")
    return ", ".join(columns)


class DecisionsRequest(StageModel):
    """Which decisions to retrieve, and the feature service to join.

    Attributes:
        since: Only decisions from this time on, ISO 8601; empty for all.
        until: Only decisions before this time, ISO 8601; empty for all up to `as_of`.
        keys: Reference of keys and times to score instead of the label's decisions.
        unlabelled: Only decisions whose label is not known yet or younger than its horizon; the result may be empty.
    """

    snapshot: str
    feature_tables: str
    definitions: str
    service: str
    as_of: str
    since: str = ""
    until: str = ""
    keys: str = ""
    unlabelled: bool = False


class DecisionsResult(StageModel):
    """The rows and their number; the reference is empty where there are no rows."""

    decisions: str
    rows: int


@stage(
    "retrieve_decisions",
    title="Retrieve the rows to score",
    pages={"decisions": CONTENTS},
)
def retrieve_decisions(request: DecisionsRequest, store: ArtifactStore) -> DecisionsResult:
    """Join a feature service point-in-time to decisions whose outcome need not be known; no label is read.

    Raises ConfigurationError if the span does not parse or holds no decision, more than one of span, keys and
    unlabelled is chosen, the keys are not those of the label's rows, or there is no such service.
    """
    from gatehouse.data.splitting.publication import publish_rows
    from gatehouse.features.computing.sources import Sources
    from gatehouse.features.computing.spans import ALL_TIME, BEGINNING, Span
    from gatehouse.features.computing.table_pieces import RowsRequest, stage_span
    from gatehouse.features.database import connect, set_time
    from gatehouse.features.definitions.repository import check_out
    from gatehouse.features.point_in_time.feast_store import applied, retrieve
    from gatehouse.features.table_files import feature_files

    texts = {name: getattr(request, name) for name in ("as_of", "since", "until")}
    as_of, since, until = (in_utc(name, text) if text else None for name, text in texts.items())
    if as_of is None or (until or as_of) > as_of or (since and since >= (until or as_of)):
        raise ConfigurationError(
            f"Decisions: expected since before until, and until at most {request.as_of}, the newest time that the "
            f"snapshot covers; found {request.since or 'no since'} and {request.until or 'no until'}."
        )
    if sum(map(bool, (request.keys, since or until, request.unlabelled))) > 1:
        raise ConfigurationError(
            "Decisions: expected a span (since, until), keys or unlabelled, found more than one of them."
        )
    with store.workspace() as workspace:
        repository = check_out(store, request.definitions, workspace / "feature_repo")
        with connect() as connection:
            for name, moment in (("as_of", as_of), ("decided_since", since), ("decided_until", until)):
                set_time(connection, name, moment)
            if request.keys:
                (file,) = store.manifest(request.keys).files
                store.copy(request.keys, file.path, workspace / "keys" / file.path)
                rows = rows_of_file(connection, repository, workspace / "keys" / file.path, as_of)
            else:
                label, queries = repository.of_label, [repository.entity_rows]
                datasets, window = store.manifest(request.snapshot).derived_from, repository.label.window
                sources, span = Sources.of(store, label, datasets, as_of, queries), ALL_TIME
                if (since or until) and window is not None and not sources.one_piece:
                    sources, span = sources.counted(), Span(since or BEGINNING, until or as_of)
                tables = sources.files(queries, window, span)
                origin = {"definitions": request.definitions, "as_of": as_of.isoformat()}
                body = RowsRequest(**origin, start=span.start, end=span.end, tables=tables)
                stage_span(connection, store, label, body, queries, window)
                rows = (unlabelled_rows if request.unlabelled else decided_rows)(connection, repository)
        if request.unlabelled and not rows.num_rows:
            return DecisionsResult(decisions="", rows=0)
        if not rows.num_rows:
            raise ConfigurationError(
                f"Decisions: expected at least one between {request.since or 'the beginning'} and "
                f"{(until or as_of).isoformat()}, found none in {request.snapshot}. Give another since, or take a "
                "newer snapshot."
            )
        with applied(repository, feature_files(store, request.feature_tables), workspace) as feast:
            table = retrieve(feast, repository, request.service, rows, workspace).table
        roles = ("snapshot", "feature_tables", "definitions", "keys")
        inputs = {role: reference for role in roles if (reference := getattr(request, role))}
        options = {name: getattr(request, name) for name in ("service", "as_of", "since", "until")}
        options |= {"unlabelled": True} if request.unlabelled else {}
        keys, task = list(repository.entity_keys), repository.label.task
        details = {"entity_keys": keys, "decision_time": "decision_time", "task": task}
        reference = publish_rows(store, "decisions", request.service, table, details, inputs, options)
    return DecisionsResult(decisions=str(reference), rows=table.num_rows)
