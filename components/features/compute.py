"""Runs the repository's SQL in DuckDB: raw tables to staging tables to feature tables.

Deterministic by construction: measures that are summed are integers, and every table is written in a total order.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.features.repository import EVENT_TIMESTAMP, Repository, View, staged_by
from gatehouse.errors import ConfigurationError

_ROW_GROUP = 1 << 17
_TYPES = {"numeric": "FLOAT", "categorical": "VARCHAR", "string": "VARCHAR", "int64": "BIGINT"}


def connect() -> duckdb.DuckDBPyConnection:
    """A fresh in-memory DuckDB on UTC that installs nothing and draws no progress bar."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": "false", "preserve_insertion_order": "true"})
    connection.execute("SET TimeZone = 'UTC'; SET enable_progress_bar = false; CREATE SCHEMA raw; CREATE SCHEMA source")
    connection.execute("CREATE SCHEMA staging; CREATE SCHEMA features")
    return connection


def open_tables(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], schema: str = "raw"
) -> None:
    """Make Parquet files readable as `<schema>.<table>`."""
    for table, paths in tables.items():
        files = ", ".join(_quoted(path) for path in paths)
        connection.execute(f'CREATE OR REPLACE VIEW {schema}."{table}" AS SELECT * FROM read_parquet([{files}])')


def set_time(connection: duckdb.DuckDBPyConnection, name: str, moment: datetime) -> None:
    """Set the variable that the repository's queries read with `getvariable(name)`."""
    connection.execute(f"SET VARIABLE {name} = TIMESTAMPTZ '{moment.isoformat()}'")


def run_macros(connection: duckdb.DuckDBPyConnection, repository: Repository) -> None:
    """Create the repository's SQL macros; doing it again changes nothing. Raises ConfigurationError."""
    _run(connection, repository.macros.replace("CREATE MACRO", "CREATE OR REPLACE MACRO"), "macros.sql")


def go_back(connection: duckdb.DuckDBPyConnection, repository: Repository, table: str) -> None:
    """Create `raw.<table>` as it stood at `as_of`, from `source.<table>`; a table without a history stays whole.

    Raises:
        ConfigurationError: if `known/<table>.sql` does not run.
    """
    query = repository.known.get(table, f'SELECT * FROM source."{table}"')
    _run(connection, f'CREATE TABLE raw."{table}" AS\n{query}', f"known/{table}.sql")


def stage_tables(connection: duckdb.DuckDBPyConnection, repository: Repository, queries: list[str]) -> None:
    """Create the macros and the staging tables that `queries` read.

    Raises:
        ConfigurationError: naming the file whose SQL does not run.
    """
    run_macros(connection, repository)
    for name in staged_by(repository, queries):
        _run(connection, f'CREATE TABLE staging."{name}" AS\n{repository.staging[name]}', f"staging/{name}.sql")


def compute_views(
    connection: duckdb.DuckDBPyConnection, repository: Repository, names: Iterable[str] = ()
) -> dict[str, pa.Table]:
    """The feature tables of the named views, or of all: keys, event timestamp, created timestamp if any, features.

    Rows without an event timestamp were never known and are left out; rows are sorted by key and event timestamp.

    Raises:
        ConfigurationError: naming the view whose query does not run, or lacks a column that its YAML promises.
    """
    views = [repository.views[name] for name in (names or repository.views)]
    stage_tables(connection, repository, [view.query for view in views])
    return {view.name: _compute(connection, repository, view) for view in views}


def _compute(connection: duckdb.DuckDBPyConnection, repository: Repository, view: View) -> pa.Table:
    where = f"views/{view.name}.sql"
    types = {
        **{key: _TYPES[repository.spec.entities[key]] for key in view.spec.entities},
        **{name: _TYPES[kind] for name, kind in view.spec.features.items()},
    }
    columns = ", ".join(f'CAST("{name}" AS {types.get(name, "TIMESTAMPTZ")}) AS "{name}"' for name in view.columns)
    order = ", ".join(f'"{name}"' for name in view.columns)
    query = f'SELECT {columns} FROM (\n{view.query}\n) WHERE "{EVENT_TIMESTAMP}" IS NOT NULL ORDER BY {order}'
    return _table(connection, query, where)


def entity_rows(connection: duckdb.DuckDBPyConnection, repository: Repository) -> tuple[pa.Table, dict[str, int]]:
    """The entity rows that have a label, in the order of decisions, and how many were set aside by reason.

    Raises:
        ConfigurationError: if `entity_rows.sql` does not run or lacks a column.
    """
    stage_tables(connection, repository, [repository.entity_rows])
    keys = ", ".join(f'CAST("{key}" AS {_TYPES[kind]}) AS "{key}"' for key, kind in repository.spec.entities.items())
    order = ", ".join(f'"{key}"' for key in repository.entity_keys)
    _run(connection, f"CREATE TEMP TABLE entity_rows AS\n{repository.entity_rows}", "entity_rows.sql")
    kept = _table(
        connection,
        f"SELECT {keys}, decision_time, CAST(label AS TINYINT) AS label, label_time FROM entity_rows "
        f"WHERE set_aside IS NULL ORDER BY decision_time, {order}",
        "entity_rows.sql",
    )
    counts = connection.execute(
        "SELECT set_aside, count(*) FROM entity_rows WHERE set_aside IS NOT NULL GROUP BY ALL ORDER BY ALL"
    ).fetchall()
    return kept, dict(counts)


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


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
