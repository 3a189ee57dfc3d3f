"""Reads a raw table as its spec declares it, and writes it as deterministic Parquet."""

import math
import re
import zipfile
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from gatehouse.components.snapshot.spec import ColumnType, TableSpec
from gatehouse.errors import SourceError

ROWS_PER_FILE = 131_072
ROWS_PER_GROUP = 65_536
_TYPES = {
    ColumnType.int64: pa.int64(),
    ColumnType.double: pa.float64(),
    ColumnType.string: pa.string(),
    ColumnType.bool: pa.bool_(),
    ColumnType.timestamp: pa.timestamp("us", tz="UTC"),
}


def read_table(name: str, path: Path, spec: TableSpec, nulls: tuple[str, ...]) -> pa.Table:
    """Read the raw table `name` from a CSV (also in zip or gzip) or Parquet file, typed as declared.

    Rows keep their order. A null stands for each of the texts `nulls`.

    Raises:
        SourceError: naming table, column, line and value of what does not fit.
    """
    schema = pa.schema([(column, _TYPES[kind]) for column, kind in spec.columns.items()])
    if path.suffix == ".parquet":
        table = _read_parquet(name, path, schema)
    else:
        table = _read_csv(name, path, schema, nulls)
    if table.num_rows == 0:
        raise SourceError(f"Table {name}: {path.name} has no rows. Check the source.")
    return table.combine_chunks()


def _read_parquet(name: str, path: Path, schema: pa.Schema) -> pa.Table:
    table = pq.read_table(path)
    _check_columns(name, table.column_names, schema)
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"Table {name}: {path.name} does not have the declared types: {error}.") from error


def _read_csv(name: str, path: Path, schema: pa.Schema, nulls: tuple[str, ...]) -> pa.Table:
    data = _bytes(name, path)
    header = data[: data.find(b"\n") if b"\n" in data else len(data)].decode("utf-8", "replace").strip()
    _check_columns(name, [column.strip().strip('"') for column in header.split(",")], schema)
    convert = pa.csv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=list(nulls), strings_can_be_null=True
    )
    try:
        return pa.csv.read_csv(pa.BufferReader(data), convert_options=convert)
    except pa.ArrowInvalid as error:
        raise SourceError(_explain(name, path, str(error), data, schema)) from error


def _bytes(name: str, path: Path) -> bytes:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
            if len(members) != 1:
                raise SourceError(f"Table {name}: {path.name} holds {len(members)} files, expected one CSV: {members[:5]}.")
            return archive.read(members[0])
    with pa.input_stream(str(path), compression="detect") as stream:
        data: bytes = stream.read()
    return data


def _check_columns(name: str, found: list[str], schema: pa.Schema) -> None:
    repeated = sorted({column for column in found if found.count(column) > 1})
    missing = [column for column in schema.names if column not in found]
    extra = [column for column in found if column not in schema.names]
    problems = [
        f"{label}: {', '.join(columns)}"
        for label, columns in (("repeated", repeated), ("missing", missing), ("not declared", extra))
        if columns
    ]
    if problems:
        raise SourceError(f"Table {name}: the columns are not those declared ({'; '.join(problems)}). Correct source.tables.")


def _explain(name: str, path: Path, message: str, data: bytes, schema: pa.Schema) -> str:
    """Arrow's message with the column's name and the line added, where it tells the column and the value."""
    match = re.search(r"In CSV column #(\d+): (.*?)(?:: )?invalid value '(.*)'", message, re.DOTALL)
    if match is None:
        return f"Table {name}: {path.name} cannot be read: {message}."
    lines = data.decode("utf-8", "replace").splitlines()
    column, value = lines[0].split(",")[int(match[1])].strip('"'), match[3]
    line = next((n for n, text in enumerate(lines, 1) if n > 1 and value in text.split(",")), 0)
    expected = schema.field(column).type
    return f"Table {name}: {path.name}, line {line}, column {column}: expected {expected} or a null, found {value!r}."


def within(table: pa.Table, event_time: str, start: datetime, end: datetime) -> pa.Table:
    """The rows whose event time is in [start, end)."""
    times = table[event_time]
    kind = times.type
    chosen = pc.and_(pc.greater_equal(times, pa.scalar(start, kind)), pc.less(times, pa.scalar(end, kind)))
    return table.filter(chosen).combine_chunks()


def write_shards(table: pa.Table, directory: Path) -> dict[str, tuple[Path, int]]:
    """Write a table as balanced Parquet files of at most `ROWS_PER_FILE` rows: name to file and row count."""
    files = max(1, math.ceil(table.num_rows / ROWS_PER_FILE))
    bounds = [round(index * table.num_rows / files) for index in range(files + 1)]
    written = {}
    for index, (start, stop) in enumerate(zip(bounds, bounds[1:], strict=False)):
        name = f"part-{index:05d}.parquet"
        path = directory / name
        pq.write_table(
            table.slice(start, stop - start).replace_schema_metadata(None),
            path,
            compression="zstd",
            row_group_size=ROWS_PER_GROUP,
            version="2.6",
        )
        written[name] = (path, stop - start)
    return written
