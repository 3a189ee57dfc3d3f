"""The entity rows of a file that a user has: CSV or Parquet, with keys as the definitions type them, and a time."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import duckdb
import pyarrow as pa

from gatehouse.components.features.compute import connect, quoted
from gatehouse.components.features.csv_shape import flaw_of
from gatehouse.components.features.definitions import EVENT_TIMESTAMP
from gatehouse.errors import ConfigurationError

_TYPES = {"string": "VARCHAR", "int64": "BIGINT"}
_CSV, _PARQUET = (".csv", ".csv.gz", ".tsv"), (".parquet", ".pq")


def read_entity_rows(path: Path, keys: Mapping[str, str]) -> pa.Table:
    """The rows of a file, all columns.

    Args:
        path: A CSV file with a header, or a Parquet file.
        keys: Type of every key that is needed, `string` or `int64`.

    Raises:
        ConfigurationError: if there is no such file, it cannot be read, lacks a key, or has no rows.
    """
    name = path.name
    if not path.is_file():
        raise ConfigurationError(f"{path}: expected a file of entity rows, CSV or Parquet, found none.")
    source = "'" + str(path).replace("'", "''") + "'"
    if name.lower().endswith(_CSV):
        # Keys are read as they are typed: a key of digits may begin with a zero.
        types = ", ".join(f"'{key}': '{_TYPES[kind]}'" for key, kind in keys.items())
        read, typed = f"read_csv({source}, header = true, sample_size = -1)", f", types = {{{types}}})"
    elif name.lower().endswith(_PARQUET):
        read, typed = f"read_parquet({source})", ""
    else:
        raise ConfigurationError(f"{name}: expected a file of entity rows that ends in .csv or .parquet.")
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
            cast = ", ".join(f"{quoted(key)}::{_TYPES[kind]} AS {quoted(key)}" for key, kind in keys.items())
            asked = f"FROM {read.removesuffix(')')}{typed}" if typed else f"SELECT * REPLACE ({cast}) FROM {read}"
            rows: pa.Table = connection.sql(asked).to_arrow_table()
        except duckdb.Error as error:
            _require_shape(path)
            # What follows lists the options of DuckDB's reader.
            reason = " ".join(re.split(r"\n\n|\nPossible ", str(error))[0].split())
            raise ConfigurationError(f"{name} cannot be read: {reason}") from error
    if not rows.num_rows:
        raise ConfigurationError(f"{name}: expected entity rows, found none.")
    return rows


def time_column(rows: pa.Table, wanted: str, name: str) -> str:
    """The column with the time of every row: the one that is wanted, else `event_timestamp`, else the only timestamp.

    Raises:
        ConfigurationError: naming the columns, if there is none, or several.
    """
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
    """Where a text was not read as it should: name the line that is wrong, if there is one.

    DuckDB guesses then where the header is, and its own message is of that guess.
    """
    flaw = "" if path.name.lower().endswith(_PARQUET) else flaw_of(path)
    if flaw:
        raise ConfigurationError(f"{path.name}: {flaw}")


def write_rows(batches: Sequence[pa.Table], path: Path) -> None:
    """Write rows to a CSV or a Parquet file. Raises ConfigurationError for another kind, or where it cannot be."""
    name = path.name.lower()
    if not name.endswith((".csv", *_PARQUET)):
        raise ConfigurationError(f"{path.name}: expected a file to write that ends in .csv or .parquet.")
    kind = "(FORMAT csv, HEADER)" if name.endswith(".csv") else "(FORMAT parquet, COMPRESSION zstd)"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with connect() as connection:
            connection.register("rows", pa.concat_tables(batches))
            connection.execute(f"COPY rows TO '{str(path).replace(chr(39), chr(39) * 2)}' {kind}")
    except (OSError, duckdb.Error) as error:
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{path} cannot be written: {reason}. Name another file.") from error
