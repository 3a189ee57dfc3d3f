"""DuckDB for features: an in-memory database on UTC, Parquet files as tables, names and values written as SQL."""

import atexit
import ctypes
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from threading import Lock

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.store import database
from gatehouse.store.database import quoted, text_literal, time_literal

_ROW_GROUP = 1 << 17


@contextmanager
def connect(spill: Path | None = None, most: int = 0) -> Iterator[duckdb.DuckDBPyConnection]:
    """A fresh in-memory DuckDB on UTC; `spill` and `most` are as for `gatehouse.store.database.connect`."""
    with _started(spill, most) as connection:
        connection.execute("SET enable_progress_bar = false; CREATE SCHEMA features")
        empty_schemas(connection)
        yield connection


@contextmanager
def cursor() -> Iterator[duckdb.DuckDBPyConnection]:
    """A cursor of this process's DuckDB instance, for short queries: starting an instance takes 15 ms."""
    try:
        with shared().cursor() as connection:
            yield connection
    except Exception as error:
        if isinstance(error, duckdb.FatalException) or isinstance(error.__context__, duckdb.FatalException):
            _forget()  # The instance is of no use any more, also if the error was translated.
        raise


_lock = Lock()
_instance: duckdb.DuckDBPyConnection | None = None


def shared() -> duckdb.DuckDBPyConnection:
    """The DuckDB instance of this process, for `cursor`. A setting that is not of a session would hold for all."""
    global _instance
    with _lock:
        if _instance is None:
            _instance = _started()
        return _instance


def _forget() -> None:
    global _instance
    _instance = None


def _leave_to_parent() -> None:
    """A forked process has none of the threads of its parent's instance: to close that would wait for them."""
    global _lock
    _lock = Lock()
    if _instance is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(_instance))
    _forget()


os.register_at_fork(after_in_child=_leave_to_parent)
atexit.register(_forget)  # DuckDB complains of connections that outlive the interpreter.


def _started(spill: Path | None = None, most: int = 0) -> duckdb.DuckDBPyConnection:
    instance = database.connect(
        spill=spill, most=most, autoinstall_known_extensions="false", preserve_insertion_order="true"
    )
    instance.execute("SET GLOBAL TimeZone = 'UTC'")
    return instance


def empty_schemas(connection: duckdb.DuckDBPyConnection) -> None:
    """Drop the tables from which features are computed, so that other tables can be opened."""
    for schema in ("source", "raw", "staging"):
        connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")


def open_tables(
    connection: duckdb.DuckDBPyConnection, tables: Mapping[str, Sequence[Path]], schema: str = "raw"
) -> None:
    """Make Parquet files readable as `<schema>.<table>`."""
    for table, paths in tables.items():
        connection.execute(f"CREATE OR REPLACE VIEW {schema}.{quoted(table)} AS SELECT * FROM {rows_of(paths)}")


def rows_of(paths: Sequence[Path]) -> str:
    """SQL that can follow FROM: the rows of Parquet files, or of those in a folder."""
    files = ", ".join(text_literal(path / "*.parquet" if path.is_dir() else path) for path in paths)
    return f"read_parquet([{files}])"


def write_parquet(table: pa.Table, path: Path) -> None:
    """Write `table` the same way every time: zstd, fixed row groups, no metadata but the schema."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(None), path, compression="zstd", row_group_size=_ROW_GROUP)


def set_time(connection: duckdb.DuckDBPyConnection, name: str, moment: datetime | None) -> None:
    """Set the variable that the repository's queries read with `getvariable(name)`; None for null."""
    value = "NULL" if moment is None else time_literal(moment)
    connection.execute(f"SET VARIABLE {quoted(name)} = {value}::TIMESTAMPTZ")
