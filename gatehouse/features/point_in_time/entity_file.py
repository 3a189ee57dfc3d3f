"""Reads a user's file of entity rows: CSV or Parquet, with keys of the defined types, and a time."""

import csv
import gzip
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from gatehouse.errors import ConfigurationError
from gatehouse.features.database import connect
from gatehouse.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.features.exact import DECLARED, TIME, cast_column, cast_texts, row_of
from gatehouse.store.database import text_literal
from gatehouse.store.hidden_values import error_words

_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv"), (".parquet", ".pq")
_DELIMITERS = ",;\t|"


def ending_of(name: str) -> str:
    """The ending of the name of an entity file, in lower case. Raises ConfigurationError for any other file."""
    for ending in (*_CSV, *_PARQUET):
        if name.lower().endswith(ending):
            return ending
    raise ConfigurationError(f"{name}: expected a file of entity rows that ends in .csv or .parquet.")


def read_entity_rows(
    path: Path, keys: Mapping[str, str], values: Mapping[str, str] | None = None, time: str = ""
) -> pa.Table:
    """Read the rows of a file, with all columns.

    `path` is a CSV file in UTF-8 with a header, or a Parquet file. Columns of a CSV file that are named here get their
    type, and all others are text as it is written. `values` has the kind of every request value, and `time` is the
    column with the times, in ISO 8601 (dates are midnight in UTC); these columns may be missing.

    Raises ConfigurationError if the file cannot be read, has no rows, has a column twice, lacks a key, or has a value
    of another type.
    """
    name = path.name
    if not path.is_file():
        raise ConfigurationError(f"{path}: expected a file of entity rows, CSV or Parquet, found none.")
    is_text, packed = ending_of(name) in _CSV, name.lower().endswith(".gz")
    try:
        if is_text:
            with (gzip.open if packed else open)(path, "rt", encoding="utf-8-sig", newline="") as lines:
                header = next((line for line in lines if line.strip()), "")
            delimiter = max(_DELIMITERS, key=header.count)
            names = next(csv.reader([header], delimiter=delimiter), [])
            texts = pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), null_values=[""], strings_can_be_null=True
            )
            parsing = pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True)
            with pa.input_stream(str(path), compression="gzip" if packed else None) as file:
                rows = pa.csv.read_csv(file, parse_options=parsing, convert_options=texts)
        else:
            rows = pq.ParquetFile(path).read()
    except (OSError, EOFError, UnicodeDecodeError, pa.ArrowException) as error:
        raise ConfigurationError(f"{name} cannot be read: {error_words(error)}") from error
    if missing := [key for key in keys if key not in rows.column_names]:
        raise ConfigurationError(
            f"{name}: expected the key columns {', '.join(keys)}, found {', '.join(rows.column_names)}: "
            f"{', '.join(missing)} is missing. Rename a column, or ask for fewer views."
        )
    counts = Counter(column.lower() for column in rows.column_names)  # SQL ignores the case of names.
    if twice := [column for column in rows.column_names if column and counts[column.lower()] > 1]:
        raise ConfigurationError(f"{name}: expected every column once, found {', '.join(twice)}. Rename or drop one.")
    if not rows.num_rows:
        raise ConfigurationError(f"{name}: expected entity rows, found none.")
    types = {column: DECLARED[kind] for column, kind in {**(values or {}), **keys}.items()}
    for place, field in enumerate(rows.schema):
        is_time = field.name == time and not pa.types.is_timestamp(field.type)
        if kind := TIME if is_time else types.get(field.name):
            cast = cast_texts if is_text else cast_column
            rows = rows.set_column(place, field.name, cast(rows[place], kind, row_of(f"{name}: {field.name}")))
    return rows


def time_of(rows: pa.Table, column: str, name: str) -> str:
    """The name of the time column of rows: `column`, else `event_timestamp`, else the only timestamp.

    Raises ConfigurationError if there is none, or all its times are null.
    """
    expected = column or EVENT_TIMESTAMP
    if expected in rows.column_names and rows[expected].null_count == rows.num_rows:
        raise ConfigurationError(f"{name}: {expected}: expected times, found null in every row.")
    times = [field.name for field in rows.schema if pa.types.is_timestamp(field.type)]
    for choice in [column] if column else [EVENT_TIMESTAMP, *(times if len(times) == 1 else [])]:
        if choice in times:
            return choice
    listed = ", ".join(f"{field.name} ({field.type})" for field in rows.schema)
    raise ConfigurationError(
        f"{name}: expected a timestamp in the column {expected}, found {listed}. Name the column with --time; write "
        "times as 2013-01-31 14:00:00+00."
    )


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
        raise ConfigurationError(f"{path} cannot be written: {error_words(error)}. Name another file.") from error
