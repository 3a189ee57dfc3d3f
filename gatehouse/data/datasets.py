"""Reads and writes KFP Datasets: tables in Parquet, CSV or JSON lines, whose format is looked at.

A Dataset has no file extension. Whatever wrote it, its columns have the types that a snapshot has (int64, double,
string, bool, and timestamps in UTC), so that one contract fits a CSV and Parquet; lists and the like stay as they are.
"""

import re
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from gatehouse.data.snapshot.column_types import SniffedColumn, typed_column
from gatehouse.data.snapshot.sniffing import sniff
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.casts import TYPES, read_as, read_texts
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FileTable, FolderSource
from gatehouse.errors import ConfigurationError, DeclarationError, SourceError
from gatehouse.store.store import ArtifactStore

FORMATS = ("parquet", "csv", "jsonl")
_EXPECTED = "expected Parquet, a CSV with a header, or JSON lines"
_PARQUET = b"PAR1"
_OTHERS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive (also .npz, .xlsx, or a model of PyTorch)",
    b"\x93NUMPY": "an array of NumPy",
    b"\x89HDF": "HDF5",
    b"ARROW1": "Arrow IPC or Feather",
    b"ORC": "ORC",
    b"[": "one JSON array (of pandas: to_json(orient='records', lines=True) writes lines)",
}
"""What files that are no Dataset begin with."""


def read_dataset(path: str | Path, format: str = "") -> pa.Table:
    """Read all rows of a Dataset: a file, or a folder of Parquet files of equal columns, in the order of their names.

    In a CSV, an empty cell and NA are nulls, as is another text such as `?` in an otherwise numeric column; a column
    with any value of another type is a text. A time without a zone is in UTC. Nothing is unpickled.

    Args:
        path: Its place on this machine.
        format: `parquet`, `csv` or `jsonl`; empty to look at its first bytes.

    Raises:
        ConfigurationError: if there is no such format.
        DeclarationError: if it is missing, empty, truncated or of another format; if a row of a CSV has another number
            of fields than the header; or if two columns have one name, or a value fits no type.
    """
    path = Path(path)
    if format and format not in FORMATS:
        raise ConfigurationError(f"format: expected {', '.join(FORMATS)}, or empty to look, found {format!r}.")
    if path.is_dir():
        return _typed(pa.concat_tables(_folder(path)), path)
    if not path.is_file():
        raise DeclarationError(f"{path}: no such Dataset. Check that the task before has written it.")
    match format or _look(path):
        case "parquet":
            return _typed(_read_parquet(path), path)
        case "jsonl":
            return _read_json_lines(path)
    return _read_csv(path)


def write_dataset(table: pa.Table, path: str | Path) -> None:
    """Write a table as one Parquet file; equal tables give equal bytes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.combine_chunks().replace_schema_metadata(None), path, compression="zstd")


def _look(path: Path) -> str:
    """The format of a file, by its first bytes. Raises DeclarationError if it is none of `FORMATS`."""
    with open(path, "rb") as stream:
        head = stream.read(4096)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not text:
        raise DeclarationError(f"{path}: {_EXPECTED}, found {'blanks' if head else 'an empty file'}.")
    if head.startswith(_PARQUET):
        return "parquet"
    other = next((name for magic, name in _OTHERS.items() if text.startswith(magic)), "")
    # A pickle of protocol 2 or later; no text in UTF-8 begins so.
    if head[0] == 0x80 and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        other = "a pickle, which is never read, as it can run code"
    if not other and b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):
        other = f"bytes that are no text, beginning with {head[:8]!r}"
    if other:
        raise DeclarationError(f"{path}: {_EXPECTED}, found {other}. Write it again in one of these.")
    return "jsonl" if text.startswith(b"{") else "csv"


def _folder(path: Path) -> list[pa.Table]:
    """The Parquet files of a folder; those whose names begin with `_` or `.` are notes of what wrote it."""
    files = [file for file in sorted(path.iterdir()) if not file.name.startswith(("_", "."))]
    if strange := [file.name for file in files if file.is_dir() or _look(file) != "parquet"]:
        raise DeclarationError(f"{path}: expected a folder of Parquet files alone, found {', '.join(strange[:5])}.")
    tables = [_read_parquet(file) for file in files]
    if not tables:
        raise DeclarationError(f"{path}: expected Parquet files in this folder, found none.")
    for file, table in zip(files, tables, strict=True):
        if not table.schema.equals(tables[0].schema):
            raise DeclarationError(
                f"{path}: expected files of equal columns, but {file.name} has {_columns(table)}, and {files[0].name} "
                f"{_columns(tables[0])}. Write both with one schema."
            )
    return tables


def _columns(table: pa.Table) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in table.schema)


def _read_parquet(path: Path) -> pa.Table:
    try:
        return pq.ParquetFile(path).read().replace_schema_metadata(None)
    except (pa.ArrowException, OSError) as error:
        raise DeclarationError(f"{path}: is not intact Parquet, perhaps cut off: {error}. Write it again.") from None


def _read_json_lines(path: Path) -> pa.Table:
    try:
        table = pa.json.read_json(path)
    except pa.ArrowInvalid as error:
        raise DeclarationError(
            f"{path}: expected one JSON object a line, with one type for each key: {error}. Correct it at the source."
        ) from None
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):  # Arrow reads times with whole seconds only.
            cells = table[field.name].combine_chunks()
            times = read_texts(cells.cast(pa.binary()), ColumnType.timestamp, zone="UTC")
            if times.fits is None and cells.null_count < len(cells):
                table = table.set_column(place, field.name, times.values)
    return _typed(table, path)


def _read_csv(path: Path) -> pa.Table:
    """Read by the reader that takes snapshots, which goes by the name of a file: so it gets one here."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, re.sub(r"\W", "_", path.name) + ".csv")
        file.symlink_to(path.resolve())
        try:
            sniffed = sniff(file)
            if nameless := [column for column in sniffed.columns if column.left_out]:
                raise DeclarationError(
                    f"{len(nameless)} of its columns without a name, expected one for each (of pandas: "
                    "to_csv(index=False)); found names: " + ", ".join(column.name for column in sniffed.kept)
                )
            table = FileTable(
                member=file.name,
                delimiter=sniffed.delimiter,
                decimal=sniffed.decimal,
                encoding=sniffed.encoding,
                columns={column.name: _kind(column) for column in sniffed.columns},
                times={column.name: column.form for column in sniffed.columns if column.form and _is_time(column)},
            )
            spec = FolderSource(
                name="dataset", path=folder, nulls=sniffed.nulls, time_zone="UTC", tables={path.name: table}
            )
            reader = FileReader(spec, "", ArtifactStore.open(folder), Path(folder))
            return pa.concat_tables(part.read().table for part in reader.parts(path.name, ()))
        except SourceError as error:
            words = str(error).removeprefix(f"{file}: ").removeprefix(f"Table {path.name}: ")
            words = words.removeprefix(f"{file.name}: ").removeprefix(f"{file.name}, ").rstrip(".")
            raise DeclarationError(f"{path}: {words}. Correct the CSV, or what writes it.") from None


def _is_time(column: SniffedColumn) -> bool:
    """Whether a column holds times for sure: a number stays one, and a date of two readings a text."""
    return column.kind is ColumnType.timestamp and not (column.number or column.also or column.misfits)


def _kind(column: SniffedColumn) -> ColumnType:
    if column.kind is ColumnType.timestamp:
        return ColumnType.timestamp if _is_time(column) else column.number or ColumnType.string
    return ColumnType.string if column.misfits else column.kind


def _typed(table: pa.Table, path: Path) -> pa.Table:
    """The table with the types of a snapshot. Raises DeclarationError if a value would change."""
    if repeated := sorted({name for name in table.column_names if table.column_names.count(name) > 1}):
        raise DeclarationError(f"{path}: expected columns of different names, found twice: {', '.join(repeated)}.")
    for place, field in enumerate(table.schema):
        sniffed = typed_column(field.name, field.type)
        kind = TYPES[sniffed.kind]
        if sniffed.left_out or field.type == kind:
            continue
        if pa.types.is_null(field.type):
            table = table.set_column(place, field.name, pa.nulls(table.num_rows, kind))
            continue
        read = read_as(table[field.name].combine_chunks(), sniffed.kind, "UTC")
        if read is None or read.fits is not None:
            row = pc.index(read.fits, False).as_py() + 1 if read else 1
            raise DeclarationError(
                f"{path}: column {field.name}, row {row}: expected a value that {sniffed.kind} holds exactly (times to "
                f"the microsecond), found a {field.type} that it does not. Convert the column where it is written."
            )
        table = table.set_column(place, field.name, read.values)
    return table
