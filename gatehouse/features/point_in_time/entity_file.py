"""Reads a user's file of entity rows: CSV or Parquet, with keys of the defined types, and a time."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect, text_literal
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.features.exact import DECLARED, TIME, cast_column, cast_texts, row_of
from gatehouse.features.point_in_time.csv_shape import flaw_of, header_of
from gatehouse.store.hidden_values import said_by

_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv"), (".parquet", ".pq")


def ending_of(name: str) -> str:
    """The ending of the name of an entity file, in lower case.

    Raises:
        ConfigurationError: if it is neither `.csv` nor `.parquet`.
    """
    for ending in (*_CSV, *_PARQUET):
        if name.lower().endswith(ending):
            return ending
    raise ConfigurationError(f"{name}: expected a file of entity rows that ends in .csv or .parquet.")


def read_entity_rows(
    path: Path, keys: Mapping[str, str], values: Mapping[str, str] | None = None, time: str = ""
) -> pa.Table:
    """Read the rows of a file, with all columns.

    Columns of a CSV file that are named here get their type, and all others are text as it is written.

    Args:
        path: A CSV file with a header, or a Parquet file.
        keys: Type of every required key, `string` or `int64`.
        values: Kind of every request value; a column of it may be missing.
        time: Column with the times, which may be missing; texts in it are ISO 8601, dates are midnight in UTC.

    Raises:
        ConfigurationError: if there is no such file, it cannot be read, has a column twice, lacks a key, has a value of
            another type, or has no rows.
    """
    name = path.name
    if not path.is_file():
        raise ConfigurationError(f"{path}: expected a file of entity rows, CSV or Parquet, found none.")
    written = ending_of(name) in _CSV
    try:
        rows = (_texts if written else _columns)(path, keys)
    except (OSError, EOFError, pa.ArrowException) as error:
        _require_shape(path)
        raise ConfigurationError(f"{name} cannot be read: {said_by(error)}") from error
    if not rows.num_rows:
        raise ConfigurationError(f"{name}: expected entity rows, found none.")
    types = {column: DECLARED[kind] for column, kind in {**(values or {}), **keys}.items()}
    for place, field in enumerate(rows.schema):
        is_time = field.name == time and not pa.types.is_timestamp(field.type)
        if kind := TIME if is_time else types.get(field.name):
            cast = cast_texts if written else cast_column
            rows = rows.set_column(place, field.name, cast(rows[place], kind, row_of(f"{name}: {field.name}")))
    return rows


def _texts(path: Path, keys: Mapping[str, str]) -> pa.Table:
    """The columns of a CSV file as text, null where a field is empty."""
    names, delimiter = header_of(path)
    _check_names(names, keys, path)
    with pa.input_stream(str(path), compression="gzip" if path.name.lower().endswith(".gz") else None) as file:
        return pa.csv.read_csv(
            file,
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
            ),
        )


def _columns(path: Path, keys: Mapping[str, str]) -> pa.Table:
    """The columns of a Parquet file."""
    with pq.ParquetFile(path) as file:
        _check_names(file.schema_arrow.names, keys, path)
        return file.read()


def _check_names(names: Sequence[str], keys: Mapping[str, str], path: Path) -> None:
    """Refuse columns that lack a key or are there twice: SQL ignores the case of names."""
    if lacking := [key for key in keys if key not in names]:
        _require_shape(path)
        raise ConfigurationError(
            f"{path.name}: expected the key columns {', '.join(keys)}, found {', '.join(names)}: "
            f"{', '.join(lacking)} is missing. Rename a column, or ask for fewer views."
        )
    counts = Counter(name.lower() for name in names if name)
    if twice := [name for name in names if counts[name.lower()] > 1]:
        listed = ", ".join(twice)
        raise ConfigurationError(f"{path.name}: expected every column once, found {listed}. Rename or drop one.")


def time_of(rows: pa.Table, wanted: str, name: str) -> str:
    """The name of the time column of rows: `wanted`, else `event_timestamp`, else the only timestamp.

    Raises:
        ConfigurationError: naming the columns, if there is none, or several; or if all its times are null.
    """
    asked = wanted or EVENT_TIMESTAMP
    if asked in rows.column_names and rows[asked].null_count == rows.num_rows:
        raise ConfigurationError(f"{name}: {asked}: expected times, found null in every row.")
    times = [column.name for column in rows.schema if pa.types.is_timestamp(column.type)]
    for choice in [wanted] if wanted else [EVENT_TIMESTAMP, *(times if len(times) == 1 else [])]:
        if choice in times:
            return choice
    listed = ", ".join(f"{column.name} ({column.type})" for column in rows.schema)
    raise ConfigurationError(
        f"{name}: expected a timestamp in the column {wanted or EVENT_TIMESTAMP}, found {listed}. Name the column with "
        "--time; write times as 2013-01-31 14:00:00+00."
    )


def _require_shape(path: Path) -> None:
    """Raise an error that names the wrong line of a text file, if there is one: a wrong header misses columns too."""
    flaw = "" if path.name.lower().endswith(_PARQUET) else flaw_of(path)
    if flaw:
        raise ConfigurationError(f"{path.name}: {flaw}")


def write_rows(batches: Sequence[pa.Table], path: Path) -> None:
    """Write rows to a CSV or Parquet file. Raises ConfigurationError for other endings, or if writing fails."""
    name = path.name.lower()
    if not name.endswith((".csv", *_PARQUET)):
        raise ConfigurationError(f"{path.name}: expected a file to write that ends in .csv or .parquet.")
    kind = "(FORMAT csv, HEADER)" if name.endswith(".csv") else "(FORMAT parquet, COMPRESSION zstd)"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with connect() as connection:
            connection.register("rows", pa.concat_tables(batches))
            connection.execute(f"COPY rows TO {text_literal(path)} {kind}")
    except (OSError, duckdb.Error) as error:
        raise ConfigurationError(f"{path} cannot be written: {said_by(error)}. Name another file.") from error
