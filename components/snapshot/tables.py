"""Reads a raw table as its spec declares it, and writes it as deterministic Parquet."""

import codecs
import csv
import io
import itertools
import math
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from gatehouse.components.snapshot.sources.files import FileTable as TableSpec
from gatehouse.components.snapshot.spec import ColumnType
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
_EXPECTED = {
    "string": "text in UTF-8",
    "timestamp[us, tz=UTC]": "a time with its zone, e.g. 2013-01-01T10:00:00Z,",
}


def read_table(name: str, path: Path, spec: TableSpec, nulls: tuple[str, ...]) -> pa.Table:
    """Read the raw table `name` from a CSV (also in zip or gzip) or Parquet file, typed as declared.

    Rows keep their order. A null stands for each of the texts `nulls`.

    Raises:
        SourceError: naming table, column, line and value of what does not fit.
    """
    schema = pa.schema([(column, _TYPES[kind]) for column, kind in spec.columns.items()])
    parquet = path.suffix == ".parquet"
    table = _read_parquet(name, path, schema) if parquet else _read_csv(name, path, schema, nulls)
    if table.num_rows == 0:
        raise SourceError(f"Table {name}: {path.name} has no rows. Check the source.")
    return table.combine_chunks()


def _read_parquet(name: str, path: Path, schema: pa.Schema) -> pa.Table:
    try:
        table = pq.ParquetFile(path).read()
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"Table {name}: {path.name} is not intact Parquet: {error}. Fetch it again.") from error
    _check_columns(name, table.column_names, schema)
    try:
        return table.select(schema.names).cast(schema)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SourceError(f"Table {name}: {path.name} does not have the declared types: {error}.") from error


def _read_csv(name: str, path: Path, schema: pa.Schema, nulls: tuple[str, ...]) -> pa.Table:
    data = _bytes(name, path)
    _check_columns(name, next(_rows_of(data), (1, []))[1], schema)
    convert = pa.csv.ConvertOptions(
        column_types=schema, include_columns=schema.names, null_values=list(nulls), strings_can_be_null=True
    )
    try:
        return pa.csv.read_csv(pa.BufferReader(data), convert_options=convert)
    except pa.ArrowInvalid as error:
        raise SourceError(_explain(name, path, str(error), data, schema)) from error


def _bytes(name: str, path: Path) -> bytes:
    """The CSV in a file, unpacked, without a byte order mark."""
    try:
        data = _unzipped(name, path) if path.suffix == ".zip" else _unpacked(path)
    except (zipfile.BadZipFile, zlib.error, OSError, RuntimeError) as error:
        raise SourceError(f"Table {name}: {path.name} cannot be unpacked: {error}. Fetch it again.") from error
    return data.removeprefix(codecs.BOM_UTF8)


def _unzipped(name: str, path: Path) -> bytes:
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        if len(members) != 1:
            raise SourceError(f"Table {name}: {path.name} holds {len(members)} files, expected one CSV: {members[:5]}.")
        return archive.read(members[0])


def _unpacked(path: Path) -> bytes:
    with pa.input_stream(str(path), compression="detect") as stream:
        data: bytes = stream.read()
    return data


def _rows_of(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV with the line that each ends on, from 1; each byte is one character, so that nothing is lost."""
    reader = csv.reader(io.StringIO(data.decode("latin-1"), newline=""))
    for row in reader:
        yield reader.line_num, [cell.encode("latin-1").decode("utf-8", "backslashreplace") for cell in row]


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
        raise SourceError(
            f"Table {name}: the columns are not those declared ({'; '.join(problems)}). Correct source.tables."
        )


def _explain(name: str, path: Path, message: str, data: bytes, schema: pa.Schema) -> str:
    """Arrow's message, with the column's name, the line and the value where it tells the column."""
    match = re.match(r"In CSV column #(\d+): (.*)", message, re.DOTALL)
    if match is None:
        return f"Table {name}: {path.name} cannot be read: {message}."
    rows = _rows_of(data)
    position = int(match[1])
    column = next(rows)[1][position]
    broken = _breaks(match[2])
    for line, row in rows:
        if position < len(row) and broken(row[position]):
            expected = _EXPECTED.get(str(schema.field(column).type), str(schema.field(column).type))
            found = row[position]
            place = f"Table {name}: {path.name}, line {line}, column {column}"
            return f"{place}: expected {expected} or a null, found {found!r}."
    return f"Table {name}: {path.name}, column {column}: {match[2]}."


def _breaks(message: str) -> Callable[[str], bool]:
    """Whether a cell is the one that Arrow's message is about."""
    if "UTF8" in message:
        return lambda cell: "\\x" in cell
    quoted = re.search(r"(?:invalid value|zone offset in) '(.*?)'(?:\.|$)", message, re.DOTALL)
    value = quoted[1] if quoted else None
    return lambda cell: cell == value


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
    for index, (start, stop) in enumerate(itertools.pairwise(bounds)):
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
