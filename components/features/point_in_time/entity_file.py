"""Reads a user's file of entity rows: CSV or Parquet, with keys of the defined types, and a time."""

import csv
import gzip
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from gatehouse.components.artifacts.hidden_values import said_by
from gatehouse.components.features.database import connect, quoted, text_literal
from gatehouse.components.features.definitions.declarations import EVENT_TIMESTAMP
from gatehouse.components.features.point_in_time.csv_shape import flaw_of
from gatehouse.errors import ConfigurationError

_TYPES = {"string": "VARCHAR", "int64": "BIGINT"}
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


def read_entity_rows(path: Path, keys: Mapping[str, str]) -> pa.Table:
    """Read the rows of a file, with all columns.

    Args:
        path: A CSV file with a header, or a Parquet file.
        keys: Type of every required key, `string` or `int64`.

    Raises:
        ConfigurationError: if there is no such file, it cannot be read, has a column twice, lacks a key or has a key of
            another type, or has no rows.
    """
    name = path.name
    if not path.is_file():
        raise ConfigurationError(f"{path}: expected a file of entity rows, CSV or Parquet, found none.")
    source = text_literal(path)
    if ending_of(name) in _CSV:
        # Keys are read with their defined type: a text key of digits may begin with a zero.
        types = ", ".join(f"'{key}': '{_TYPES[kind]}'" for key, kind in keys.items())
        read, typed = f"read_csv({source}, header = true, sample_size = -1)", f", types = {{{types}}})"
    else:
        read, typed = f"read_parquet({source})", ""
    with connect() as connection:
        try:
            found = connection.sql(f"FROM {read}").columns
            lacking = [key for key in keys if key not in found]
            if lacking:
                _require_shape(path)
                raise ConfigurationError(
                    f"{name}: expected the key columns {', '.join(keys)}, found {', '.join(found)}: "
                    f"{', '.join(lacking)} is missing. Rename a column, or ask for fewer views."
                )
            _refuse_twice(_header(connection, path, source) if typed else pq.read_schema(path).names, name)
            if not typed:
                _require_key_types(pq.read_schema(path), keys, name)
            cast = ", ".join(f"{quoted(key)}::{_TYPES[kind]} AS {quoted(key)}" for key, kind in keys.items())
            asked = f"FROM {read.removesuffix(')')}{typed}" if typed else f"SELECT * REPLACE ({cast}) FROM {read}"
            rows: pa.Table = connection.sql(asked).to_arrow_table()
        except duckdb.Error as error:
            _require_shape(path)
            # The rest of the message lists the options of DuckDB's reader.
            reason = said_by(type(error)(re.split(r"\n\n|\nPossible ", str(error))[0]))
            raise ConfigurationError(f"{name} cannot be read: {reason}") from error
    if not rows.num_rows:
        raise ConfigurationError(f"{name}: expected entity rows, found none.")
    return rows


def _header(connection: duckdb.DuckDBPyConnection, path: Path, source: str) -> list[str]:
    """The column names of a CSV file, as written in it."""
    dialect = connection.execute(f"SELECT Delimiter, SkipRows FROM sniff_csv({source}, header = true)").fetchall()
    delimiter, skip = dialect[0]
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as lines:
        return next(csv.reader(islice(lines, int(skip), None), delimiter=delimiter), [])


def _refuse_twice(names: Sequence[str], file: str) -> None:
    """Refuse duplicate column names: SQL ignores case, and DuckDB would call the second `<name>_1`."""
    counts = Counter(name.lower() for name in names if name)
    twice = [name for name in names if counts[name.lower()] > 1]
    if twice:
        raise ConfigurationError(f"{file}: expected every column once, found {', '.join(twice)}. Rename or drop one.")


def _require_key_types(schema: pa.Schema, keys: Mapping[str, str], file: str) -> None:
    for key, kind in keys.items():
        at = schema.get_field_index(key)
        found = schema.types[at] if at >= 0 else None
        if isinstance(found, pa.DictionaryType):
            found = found.value_type
        fits = _is_text if kind == "string" else pa.types.is_integer
        # A number written as text has lost leading characters: 7 is not the key 007.
        if found is not None and not pa.types.is_null(found) and not fits(found):
            raise ConfigurationError(
                f"{file}: {key}: expected a key of type {kind}, as the entity says, found {found}. Write it as {kind}."
            )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def with_times(rows: pa.Table, wanted: str, name: str) -> tuple[pa.Table, str]:
    """The rows, and the name of their time column: `wanted`, else `event_timestamp`, else the only timestamp.

    A date counts as midnight in UTC.

    Raises:
        ConfigurationError: naming the columns, if there is none, or several; or if all its times are null.
    """
    asked = wanted or EVENT_TIMESTAMP
    if asked in rows.column_names:
        at, column = rows.column_names.index(asked), rows[asked]
        if column.null_count == rows.num_rows:
            raise ConfigurationError(f"{name}: {asked}: expected times, found null in every row.")
        if pa.types.is_date(column.type):
            rows = rows.set_column(at, asked, column.cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC")))
    times = [column.name for column in rows.schema if pa.types.is_timestamp(column.type)]
    for choice in [wanted] if wanted else [EVENT_TIMESTAMP, *(times if len(times) == 1 else [])]:
        if choice in times:
            return rows, choice
    listed = ", ".join(f"{column.name} ({column.type})" for column in rows.schema)
    raise ConfigurationError(
        f"{name}: expected a timestamp in the column {wanted or EVENT_TIMESTAMP}, found {listed}. Name the column with "
        "--time; write times as 2013-01-31 14:00:00+00."
    )


def _require_shape(path: Path) -> None:
    """Raise an error that names the wrong line of a text file, if there is one.

    DuckDB's own message is about its guess of the header, and misleads here.
    """
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
