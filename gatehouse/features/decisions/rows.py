"""Rows to score: decisions of the label view, of a time span or without a label yet, or keys and times of a user."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.errors import ConfigurationError
from gatehouse.features.computing.compute import SQL_TYPES, require_columns, stage_tables, table_of
from gatehouse.features.computing.labels import UNLABELLED, labelled_rows
from gatehouse.features.definitions.repository import Repository
from gatehouse.features.exact import TIME, cast_column, row_of
from gatehouse.features.point_in_time.entity_file import read_entity_rows
from gatehouse.store.database import quoted, text_literal, time_literal
from gatehouse.store.hidden_values import unless_hidden
from gatehouse.store.repeatable_sql import repeatable

DECISION_TIME = "decision_time"


def decided_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> pa.Table:
    """The decisions that the label's query of entity rows gives, in the order of their time.

    Three variables of the connection limit the time: from `decided_since` on, before `decided_until`, and not after
    `as_of`. The first two may be unset. The columns are the keys, decision_time, and the request values of on-demand
    views. Raises ConfigurationError if the query does not run or lacks a column.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    stage_tables(connection, repository, [repository.entity_rows])
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
    casts = [quoted(name) for name in (*keys, DECISION_TIME)]
    casts += [f"CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in values.items()]
    order = ", ".join([DECISION_TIME, *map(quoted, keys)])
    rows = table_of(connection, f"SELECT {', '.join(casts)} FROM file_rows ORDER BY {order}", path.name)
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

    Decisions that the label view itself sets aside, such as cancelled flights, are left out. Raises as `entity_rows`.
    """
    stage_tables(connection, repository, [repository.entity_rows])
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
    columns = [f"CAST({quoted(name)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in types.items()]
    columns.insert(len(repository.label.entities), "__decided AS decision_time")
    return ", ".join(columns)
