"""Adds rows from Feast's push API to the Parquet files of a source, each version once.

A stored version never changes: a row that contradicts one is refused.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
from feast import FileSource

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import quoted, write_parquet
from gatehouse.features.exact import cast_column, row_of
from gatehouse.features.point_in_time.source_files import EVENT_DATE, SourceFiles
from gatehouse.runtime.counting import counted

_LOCK = ".gatehouse-push.lock"


def add_rows(
    connection: duckdb.DuckDBPyConnection,
    repo_path: Path | None,
    source: FileSource,
    keys: Sequence[str],
    rows: pa.Table,
) -> int:
    """Add rows to a source, and return how many were new.

    In a folder, one file is added; a single file is replaced by a new one. Readers always see a complete file.

    Args:
        connection: Where the queries run; its time zone is UTC.
        repo_path: Base of relative paths.
        source: A FileSource of Parquet files on this machine.
        keys: The source's key columns.
        rows: Rows with the source's columns; other columns are ignored.

    Raises:
        ConfigurationError: if the source is published feature tables or lies in an object store, if a row has no time,
            or if a row contradicts a stored row with the same keys and times.
    """
    path = _writable(repo_path, source)
    with _alone(path):
        scan = SourceFiles(connection, repo_path).scan(source)
        schema = connection.sql(f"FROM {scan} LIMIT 0").to_arrow_table().schema
        connection.register("pushed", _fitted(source, rows, schema))
        _check_times(connection, source)
        new: pa.Table = connection.sql(f"FROM pushed EXCEPT FROM {scan}").to_arrow_table()
        connection.register("new", new)
        _check_versions(connection, source, keys, scan)
        if new.num_rows:
            _write(connection, source, path, scan)
    return int(new.num_rows)


def _writable(repo_path: Path | None, source: FileSource) -> Path:
    if "://" in source.path and not source.path.startswith("file://"):
        raise ConfigurationError(
            f"The source {source.name}: expected files on this machine to push rows to, found {source.path}. Push to "
            "the online store only; the batch run computes the offline rows."
        )
    local = Path(source.path.removeprefix("file://"))
    path = local if local.is_absolute() or repo_path is None else Path(repo_path) / local
    if path.is_symlink():
        raise ConfigurationError(
            f"The source {source.name} is published feature tables, which never change. Push to a source of your own, "
            "or push the rows of the stream: `gatehouse features push`."
        )
    if not path.exists():
        raise ConfigurationError(f"The source {source.name}: expected a file or a folder at {source.path}, found none.")
    return path


def _fitted(source: FileSource, rows: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [name for name in schema.names if name not in rows.column_names]
    if missing:
        raise ConfigurationError(f"The source {source.name}: the pushed rows lack the columns {', '.join(missing)}.")
    where = f"The source {source.name}, the pushed rows"
    return pa.table(
        [cast_column(rows[field.name], field.type, row_of(f"{where}: {field.name}")) for field in schema], schema=schema
    )


def _times(source: FileSource) -> list[str]:
    in_table = {new: old for old, new in source.field_mapping.items()}
    named = [source.timestamp_field, source.created_timestamp_column or ""]
    return [in_table.get(name, name) for name in named if name]


def _check_times(connection: duckdb.DuckDBPyConnection, source: FileSource) -> None:
    for name in _times(source):
        missing = connection.execute(f"SELECT count(*) FROM pushed WHERE {quoted(name)} IS NULL").fetchall()[0][0]
        if missing:
            raise ConfigurationError(
                f"The source {source.name}: {counted(missing, 'pushed row')} without {name}. Give every "
                "row its event time and the time since which it is known."
            )


def _check_versions(connection: duckdb.DuckDBPyConnection, source: FileSource, keys: Sequence[str], scan: str) -> None:
    version = [*keys, *_times(source)]
    columns = ", ".join(map(quoted, version))
    match = " AND ".join(f"one.{quoted(name)} IS NOT DISTINCT FROM other.{quoted(name)}" for name in version)
    found = connection.execute(
        f"SELECT {columns} FROM new GROUP BY ALL HAVING count(*) > 1 UNION ALL "
        f"SELECT {columns} FROM new AS one SEMI JOIN {scan} AS other ON {match} LIMIT 1"
    ).fetchall()
    if found:
        shown = ", ".join(f"{name} {value}" for name, value in zip(version, found[0], strict=True))
        later = source.created_timestamp_column or "created timestamp, which the source has to have"
        raise ConfigurationError(
            f"The source {source.name}: a pushed row contradicts one with the same keys and times: {shown}. A "
            f"correction needs a later {later}, because earlier versions are kept."
        )


def _write(connection: duckdb.DuckDBPyConnection, source: FileSource, path: Path, scan: str) -> None:
    if path.is_file():
        _replace(_sorted(connection, f"FROM {scan} UNION ALL BY NAME FROM new"), path)
        return
    key = source.tags.get(EVENT_DATE, "")
    if not key:
        rows = _sorted(connection, "FROM new")
        _replace(rows, path / _name(rows))
        return
    day = f"strftime({quoted(_times(source)[0])}::TIMESTAMPTZ, '%Y-%m-%d')"
    columns = ", ".join(quoted(name) for name in connection.sql("FROM new").columns if name != key)
    for (each,) in connection.execute(f"SELECT DISTINCT {day} FROM new ORDER BY ALL").fetchall():
        rows = _sorted(connection, f"SELECT {columns} FROM new WHERE {day} = '{each}'")
        _replace(rows, path / f"{key}={each}" / _name(rows))


def _sorted(connection: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return connection.sql(f"SELECT * FROM ({query}) ORDER BY ALL").to_arrow_table()


def _name(rows: pa.Table) -> str:
    """A file name made from the rows, so that the same rows get the same name."""
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return f"pushed-{hashlib.sha256(buffer.getvalue()).hexdigest()[:32]}.parquet"


def _replace(rows: pa.Table, path: Path) -> None:
    # Files whose names begin with a dot are not part of a source.
    unfinished = path.with_name(f".{path.name}.new")
    write_parquet(rows, unfinished)
    with unfinished.open("rb") as file:
        os.fsync(file.fileno())
    os.replace(unfinished, path)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Inside this context no other process can add rows to the source."""
    with ((path if path.is_dir() else path.parent) / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
