"""Runs the repository's SQL in DuckDB: raw tables to staging tables to feature tables.

Deterministic by construction: measures that are summed are integers, and every table is written in a total order.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP, KNOWN_FROM, Available
from gatehouse.components.features.definitions.repository import Repository, View, replacing, staged_by
from gatehouse.errors import ConfigurationError

_ROW_GROUP = 1 << 17
_TYPES = {"numeric": "FLOAT", "categorical": "VARCHAR", "string": "VARCHAR", "int64": "BIGINT"}


def connect() -> duckdb.DuckDBPyConnection:
    """A fresh in-memory DuckDB on UTC that installs nothing and draws no progress bar."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "preserve_insertion_order": "true"})
    connection.execute("SET GLOBAL TimeZone = 'UTC'; SET enable_progress_bar = false; CREATE SCHEMA features")
    empty_schemas(connection)
    return connection


def empty_schemas(connection: duckdb.DuckDBPyConnection) -> None:
    """Forget the tables from which features are computed, so that others can be opened."""
    for schema in ("source", "raw", "staging"):
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")


def open_tables(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], schema: str = "raw"
) -> None:
    """Make Parquet files readable as `<schema>.<table>`."""
    for table, paths in tables.items():
        connection.execute(f"CREATE OR REPLACE VIEW {schema}.{quoted(table)} AS SELECT * FROM {rows_of(paths)}")


def quoted(name: str) -> str:
    """A name as SQL has it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def text_literal(text: object) -> str:
    """A text as SQL has it, whatever is in it."""
    return "'" + str(text).replace("'", "''") + "'"


def time_literal(moment: datetime) -> str:
    """A moment as SQL has it: with a time zone where `moment` has one."""
    return f"{'TIMESTAMPTZ' if moment.tzinfo else 'TIMESTAMP'} '{moment.isoformat()}'"


def rows_of(paths: Sequence[Path]) -> str:
    """SQL that can follow FROM: the rows of Parquet files, or of those in a folder."""
    files = ", ".join(text_literal(path / "*.parquet" if path.is_dir() else path) for path in paths)
    return f"read_parquet([{files}])"


def set_time(connection: duckdb.DuckDBPyConnection, name: str, moment: datetime | None) -> None:
    """Set the variable that the repository's queries read with `getvariable(name)`; None for null."""
    value = "NULL" if moment is None else time_literal(moment)
    connection.execute(f"SET VARIABLE {quoted(name)} = {value}::TIMESTAMPTZ")


def run_macros(connection: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    """Create the repository's SQL macros; doing it again changes nothing. Raises ConfigurationError."""
    _run(connection, replacing(repository.macros), "macros.sql")


def go_back(connection: duckdb.DuckDBPyConnection, repository: Repository, table: str) -> None:
    """Create `raw.<table>` as it stood at `as_of`, from `source.<table>`; a table without a history stays whole.

    Raises:
        ConfigurationError: if `known/<table>.sql` does not run.
    """
    query = repository.known.get(table, f"SELECT * FROM source.{quoted(table)}")
    _run(connection, f"CREATE TABLE raw.{quoted(table)} AS\n{query}", f"known/{table}.sql")


def stage_tables(connection: duckdb.DuckDBPyConnection, repository: Repository, queries: list[str]) -> None:
    """Create the macros and the staging tables that `queries` read.

    Raises:
        ConfigurationError: naming the file whose SQL does not run.
    """
    run_macros(connection, repository)
    for name in staged_by(repository, queries):
        _run(connection, f"CREATE TABLE staging.{quoted(name)} AS\n{repository.staging[name]}", f"staging/{name}.sql")


def compute_views(
    connection: duckdb.DuckDBPyConnection, repository: Repository, names: Iterable[str] = ()
) -> dict[str, pa.Table]:
    """The feature tables of the named views, or of all: keys, event timestamp, since when it is known, features.

    Rows without an event timestamp or without a time from which they are known were never known and are left out. None
    is known before its event. Where the variables `from` and `until` are set, only event times between them are given.
    Rows are sorted by key, event timestamp and known time.

    Raises:
        ConfigurationError: naming the view whose query does not run, or lacks a column that its definition promises.
    """
    return dict(each_view(connection, repository, names or repository.views))


def each_view(
    connection: duckdb.DuckDBPyConnection, repository: Repository, names: Iterable[str]
) -> Iterator[tuple[str, pa.Table]]:
    """As `compute_views`, one after the other."""
    views = [repository.views[name] for name in names]
    stage_tables(connection, repository, [view.query for view in views])
    for view in views:
        yield view.name, _compute(connection, repository, view)


def _compute(connection: duckdb.DuckDBPyConnection, repository: Repository, view: View) -> pa.Table:
    spec = view.spec
    types = {
        **{key: _TYPES[repository.entities[key]] for key in spec.entities},
        **{name: _TYPES[kind] for name, kind in spec.features.items()},
    }
    event = f"CAST({quoted(EVENT_TIMESTAMP)} AS TIMESTAMPTZ)"
    known = f"CAST({_known(spec.available)} AS TIMESTAMPTZ)" if spec.available else event
    columns = [
        *(f"CAST({quoted(key)} AS {types[key]}) AS {quoted(key)}" for key in spec.entities),
        f"{event} AS {quoted(EVENT_TIMESTAMP)}",
        f"if({known} IS NULL, NULL, greatest({event}, {known})) AS {quoted(KNOWN_FROM)}",
        *(f"CAST({quoted(name)} AS {types[name]}) AS {quoted(name)}" for name in spec.features),
    ]
    order = ", ".join(map(quoted, view.columns))
    within = [f"{quoted(name)} IS NOT NULL" for name in (EVENT_TIMESTAMP, KNOWN_FROM)]
    if not spec.static:
        within.append(f"coalesce({quoted(EVENT_TIMESTAMP)} >= getvariable('from')::TIMESTAMPTZ, true)")
        within.append(f"coalesce({quoted(EVENT_TIMESTAMP)} <= getvariable('until')::TIMESTAMPTZ, true)")
    rows = f"SELECT {', '.join(columns)} FROM (\n{view.query}\n)"
    query = f"SELECT * FROM ({rows}) WHERE {' AND '.join(within)} ORDER BY {order}"
    try:
        table = _table(connection, query, f"views/{view.name}.sql")
    except ConfigurationError:
        _refuse_text(connection, view)
        raise
    _refuse_doubled(view, table)
    return table


def _refuse_text(connection: duckdb.DuckDBPyConnection, view: View) -> None:
    """Tell which feature is declared numeric over what is no number, where that is why a view does not run."""
    for name in (name for name, kind in view.spec.features.items() if kind == "numeric"):
        text = f"{quoted(name)}::VARCHAR"
        typed = f"SELECT typeof({quoted(name)}) AS type, {text} AS text FROM (\n{view.query}\n)"
        try:
            found = connection.execute(
                f"SELECT * FROM ({typed}) WHERE text IS NOT NULL AND type <> 'BOOLEAN' "
                f"AND TRY_CAST(text AS {_TYPES['numeric']}) IS NULL LIMIT 1"
            ).fetchall()
        except duckdb.Error:
            continue  # It is the query itself that does not run.
        if found:
            kind, value = found[0]
            kind = "text" if kind == "VARCHAR" else kind
            raise ConfigurationError(
                f"views/{view.name}.sql: {name}: declared numeric, found {kind}, such as {value!r}. Declare it "
                "categorical, or give a number."
            )


def _refuse_doubled(view: View, table: pa.Table) -> None:
    """Rows are told apart by key, event and known time; of two that agree in all, a join could take either."""
    names = [*view.spec.entities, EVENT_TIMESTAMP, KNOWN_FROM]
    same = np.ones(max(0, table.num_rows - 1), dtype=bool)
    for name in reversed(names):  # sorted, so such rows follow each other
        one, next_one = table[name].slice(0, len(same)), table[name].slice(1)
        both_null = pc.and_(pc.is_null(one), pc.is_null(next_one))
        same &= np.asarray(pc.or_(pc.fill_null(pc.equal(one, next_one), False), both_null))
    if same.any():
        first = table.select(names).slice(int(same.argmax()), 1).to_pylist()[0]
        where = ", ".join(f"{name} {value}" for name, value in first.items())
        raise ConfigurationError(
            f"views/{view.name}.sql: expected one row for each of {', '.join(names)}, found {int(same.sum())} more, "
            f"first {where}. Group the query by them, or keep one row with QUALIFY row_number() OVER (...) = 1."
        )


def entity_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows that have a mature label, in the order of decisions, and how many were set aside by reason.

    Beside keys, times and label they have the values that on-demand views take from a request.

    A label counts from its arrival on, and not before its horizon is over: the later of both is its `label_time`.

    Raises:
        ConfigurationError: if the label's query does not run or lacks a column.
    """
    label, where = repository.label, f"labels/{repository.label.name}.sql"
    stage_tables(connection, repository, [repository.entity_rows])
    keys = ", ".join(
        f"CAST({quoted(key)} AS {_TYPES[repository.entities[key]]}) AS {quoted(key)}" for key in label.entities
    )
    order = ", ".join(map(quoted, label.entities))
    reason = quoted(label.set_aside)
    own = f"WHEN {reason} IS NOT NULL THEN {reason}" if label.set_aside else ""
    as_of = "getvariable('as_of')::TIMESTAMPTZ"
    timed = (
        f"SELECT *, {quoted(label.decision_time)}::TIMESTAMPTZ AS __decided, "
        f"({_known(label.arrives)})::TIMESTAMPTZ AS __arrived, "
        f"__decided + {_interval(label.horizon)} AS __mature FROM (\n{repository.entity_rows}\n)"
    )
    values = repository.request_values()
    request = "".join(f", CAST({quoted(name)} AS {_TYPES[kind]}) AS {quoted(name)}" for name, kind in values.items())
    _run(
        connection,
        f"CREATE OR REPLACE TEMP TABLE entity_rows AS SELECT *, CASE {own} "
        "WHEN __decided IS NULL THEN 'no decision time' "
        f"WHEN __arrived IS NULL OR __arrived > {as_of} THEN 'label not known yet' "
        f"WHEN __mature > {as_of} THEN 'label younger than its horizon' "
        f"WHEN {quoted(label.label)} IS NULL THEN 'no label' END AS __reason FROM ({timed})",
        where,
    )
    kept = _table(
        connection,
        f"SELECT {keys}, __decided AS decision_time, CAST({quoted(label.label)} AS TINYINT) AS label, "
        f"greatest(__arrived, __mature) AS label_time{request} FROM entity_rows "
        f"WHERE __reason IS NULL ORDER BY __decided, {order}",
        where,
    )
    counts = connection.execute(
        "SELECT __reason, count(*) FROM entity_rows WHERE __reason IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return kept, dict(counts)


def _known(available: Available) -> str:
    """SQL of the time from which on a row is known."""
    column = quoted(available.column)
    return f"{column} + {_interval(available.lag)}" if available.lag else column


def _interval(span: timedelta) -> str:
    return f"to_microseconds({span // timedelta(microseconds=1)})"


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write `table` the same way every time: zstd, fixed row groups, no metadata but the schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", row_group_size=_ROW_GROUP)


def _run(connection: duckdb.DuckDBPyConnection, query: str, where: str) -> None:
    try:
        connection.execute(query)
    except duckdb.Error as error:
        raise _broken(where, error) from error


def _table(connection: duckdb.DuckDBPyConnection, query: str, where: str) -> pa.Table:
    try:
        return connection.sql(query).to_arrow_table()
    except duckdb.Error as error:
        raise _broken(where, error) from error


def _broken(where: str, error: duckdb.Error) -> ConfigurationError:
    return ConfigurationError(f"The feature repository's {where} does not run: {' '.join(str(error).split())}")
