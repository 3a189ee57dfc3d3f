"""Runs the repository's SQL in DuckDB: raw tables to staging tables to feature tables.

The result is deterministic: no aggregate of doubles depends on the order of rows, and every table is written in a
total order.
"""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta

import duckdb
import pyarrow as pa

from gatehouse.errors import ConfigurationError, GatehouseError
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM, Available
from gatehouse.features.definitions.repository import FILE, Repository, View, staged_by
from gatehouse.features.definitions.sql_text import replacing_macros
from gatehouse.store.database import out_of_memory, quoted, text_literal
from gatehouse.store.hidden_values import error_words, unless_hidden
from gatehouse.store.repeatable_sql import repeatable

SQL_TYPES = {"numeric": "FLOAT", "double": "DOUBLE", "categorical": "VARCHAR", "string": "VARCHAR", "int64": "BIGINT"}
"""The DuckDB type of each kind of feature and each type of key."""
_OWN = "__"
_PLACE = re.compile(r"\s*\bLINE (\d+): (.*)")


def run_macros(connection: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    """Create the repository's SQL macros; a second call changes nothing. Raises ConfigurationError."""
    run(connection, replacing_macros(repository.macros), "macros.sql", above=0)


def go_back(connection: duckdb.DuckDBPyConnection, repository: Repository, table: str) -> None:
    """Create `raw.<table>` as it was at `as_of`, from `source.<table>`. One without a history is copied whole."""
    query = repository.histories.get(table, f"SELECT * FROM source.{quoted(table)}")
    where = f"known/{table}.sql"
    query = repeatable(connection, query, where, repository.macros)
    run(connection, f"CREATE TABLE raw.{quoted(table)} AS\n{query}", where)


def stage_tables(connection: duckdb.DuckDBPyConnection, repository: Repository, queries: list[str]) -> None:
    """Create the macros and the staging tables that `queries` read. Raises ConfigurationError as `run`."""
    run_macros(connection, repository)
    for name in staged_by(repository, queries):
        stage_table(connection, repository, name)


def stage_table(connection: duckdb.DuckDBPyConnection, repository: Repository, name: str) -> None:
    """Create one staging table. The staging tables that it reads must exist. Raises ConfigurationError as `run`."""
    where = f"staging/{name}.sql"
    query = repeatable(connection, repository.staging[name], where, repository.macros)
    run(connection, f"CREATE TABLE staging.{quoted(name)} AS\n{query}", where)


def compute_view(connection: duckdb.DuckDBPyConnection, repository: Repository, view: View) -> pa.Table:
    """The table of one view: keys, event timestamp, the time since which a row is known, features; in total order.

    The staging tables that it reads must exist. Rows without an event timestamp or a known time are left out. The known
    time is never before the event. The variables `from` and `until`, where they are set, limit the event times.
    """
    keep_view(connection, repository, view, "__computed")
    table = connection.sql(f"FROM __computed ORDER BY {', '.join(map(quoted, view.columns))}").to_arrow_table()
    connection.execute("DROP TABLE __computed")
    return table


def keep_view(connection: duckdb.DuckDBPyConnection, repository: Repository, view: View, name: str) -> None:
    """Create a table with the rows of one view as in `compute_view`, but in any order.

    Rows that do not fit into DuckDB's memory are kept on disk, so the table may be of any size.
    """
    spec, where = view.spec, f"views/{view.name}.sql"
    event = f"CAST({quoted(EVENT_TIMESTAMP)} AS TIMESTAMPTZ)"
    known_at = f"CAST({known_time(spec.available)} AS TIMESTAMPTZ)" if spec.available else event
    columns = [
        *casts({key: repository.entities[key] for key in spec.entities}),
        f"{event} AS {quoted(EVENT_TIMESTAMP)}",
        f"if({known_at} IS NULL, NULL, greatest({event}, {known_at})) AS {quoted(KNOWN_FROM)}",
        *casts(spec.features),
    ]
    within = [f"{quoted(time)} IS NOT NULL" for time in (EVENT_TIMESTAMP, KNOWN_FROM)]
    if not spec.static:
        within.append(f"coalesce({quoted(EVENT_TIMESTAMP)} >= getvariable('from')::TIMESTAMPTZ, true)")
        within.append(f"coalesce({quoted(EVENT_TIMESTAMP)} <= getvariable('until')::TIMESTAMPTZ, true)")
    query = repeatable(connection, view.query, where, repository.macros)
    rows = f"SELECT * FROM (SELECT {', '.join(columns)} FROM (\n{query}\n)) WHERE {' AND '.join(within)}"
    try:
        run(connection, f"CREATE OR REPLACE TABLE {name} AS {rows}", where)
    except ConfigurationError:
        available = [spec.available.column] if spec.available else []
        require_columns(connection, view.query, where, [*spec.entities, EVENT_TIMESTAMP, *available, *spec.features])
        raise
    # A join could take any of the rows that agree in key, event time and known time.
    names = [*spec.entities, EVENT_TIMESTAMP, KNOWN_FROM]
    listed = ", ".join(map(quoted, names))
    doubled = f"SELECT {listed}, count(*) - 1 AS __more FROM {name} GROUP BY ALL HAVING __more > 0"
    first = connection.sql(
        f"SELECT {listed}, sum(__more) OVER () FROM ({doubled}) ORDER BY {listed} LIMIT 1"
    ).fetchall()
    if first:
        row = ", ".join(f"{column} {value}" for column, value in zip(names, first[0], strict=False))
        raise ConfigurationError(
            f"{where}: expected one row for each of {', '.join(names)}, found {first[0][-1]} more, "
            f"{unless_hidden(f'first {row}')}. Group the query by them."
        )


def casts(kinds: Mapping[str, str]) -> list[str]:
    """SQL of columns in the type of their kind; a whole number that FLOAT would change is an error when it is met."""
    return [f"CAST({_kept(name, kind)} AS {SQL_TYPES[kind]}) AS {quoted(name)}" for name, kind in kinds.items()]


def _kept(name: str, kind: str) -> str:
    value = quoted(name)
    if kind != "numeric":
        return value
    # Fractions, and doubles of which all are whole, are measured: they lose digits that nobody counts.
    number = f"{value}::DOUBLE"
    changed = (
        f"abs({number}) BETWEEN {2**24} AND {2**53} AND {number} = floor({number}) AND {number}::FLOAT <> {number}"
    )
    expected = f"expected numbers that 32 bits hold in {name}, found a whole number that they change: declare it double"
    return f"CASE WHEN {changed} THEN error({text_literal(expected)}) ELSE {value} END"


def known_time(available: Available) -> str:
    """SQL of the time since which a row is known."""
    column = quoted(available.column)
    return f"{column} + {interval(available.lag)}" if available.lag else column


def interval(span: timedelta) -> str:
    """A length of time as an SQL literal."""
    return f"to_microseconds({span // timedelta(microseconds=1)})"


def require_columns(connection: duckdb.DuckDBPyConnection, query: str, where: str, expected: Iterable[str]) -> None:
    """Raises ConfigurationError if a query lacks a column that its definition states; SQL ignores the case of names."""
    columns = table_of(connection, f"SELECT * FROM (\n{query}\n) LIMIT 0", where).column_names
    lacking = sorted({name for name in expected if name.lower() not in {column.lower() for column in columns}})
    if lacking:
        raise ConfigurationError(
            f"The feature repository's {where}: expected the columns {', '.join(lacking)}, as {FILE} says, found only "
            f"{', '.join(columns)}."
        )


def run(connection: duckdb.DuckDBPyConnection, query: str, where: str, above: int = 1) -> None:
    """Run one statement of the repository, from the file `where`; `above` lines of `query` stand before the file's.

    Raises ConfigurationError naming the file and the line, if it does not run; OutOfMemoryError if memory is too small.
    """
    try:
        connection.execute(query)
    except duckdb.Error as error:
        raise _broken(where, query, error, above) from error


def table_of(connection: duckdb.DuckDBPyConnection, query: str, where: str) -> pa.Table:
    """The rows of one query of the repository. Raises as `run`."""
    try:
        return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise _broken(where, query, error) from error


def _broken(where: str, query: str, error: duckdb.Error, above: int = 1) -> GatehouseError:
    if memory := out_of_memory(error, f"The feature repository's {where}"):
        return memory
    message = _PLACE.split(error_words(error))[0]
    place = _PLACE.search(str(error))
    line, lines = int(place[1]) if place else 0, query.split("\n")
    # Lines above the user's query, and the one that closes the parenthesis around it, are in no file of the user.
    in_file = line > above and not (line == len(lines) and lines[-1].startswith(")"))
    shown = f" (line {line - above}: {place[2].strip()})" if place and in_file and _OWN not in place[2] else ""
    return ConfigurationError(f"The feature repository's {where} does not run: {message}{shown}")
