"""Reads and writes KFP Datasets: tables in Parquet, CSV or JSON lines, which have no file extension."""

import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet as pq

from gatehouse.data.snapshot.sniffing import SniffedColumn, sniff, typed_column
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.declared import TYPES, read_as, read_texts
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FileTable, FolderSource
from gatehouse.errors import ConfigurationError, DeclarationError, MisfitError, NoRowsError, SourceError
from gatehouse.store.store import ArtifactStore

_FORMATS = ("parquet", "csv", "jsonl")
_ALIKE = {("int64", "double"), ("double", "int64"), ("int64", "bool")}
_LONG_NUMBER = re.compile(r'"([^"]*)"\s*:\s*(-?\d{16,})\s*[,}]')
Types = Mapping[str, str]


def read_dataset(path: str | Path, format: str = "", types: Types | None = None) -> pa.Table:
    """Read all rows of a Dataset: a file, or a folder of Parquet files with equal columns, in the order of their names.

    Whatever wrote it, its columns have the types of a snapshot: int64, double, string, bool, and timestamps, in UTC
    where they state no zone; only lists and the like stay as they are. NaN is a null. In a CSV, an empty cell and NA
    are nulls, as is another text such as `?` in an otherwise numeric column. A column with any value of another type is
    a text.

    Args:
        format: `parquet`, `csv` or `jsonl`; empty to look at its first bytes.
        types: Types of columns, by name, that text leaves open: 1 may be int64, double, bool or string.

    Raises ConfigurationError if there is no such format. Raises DeclarationError if the Dataset is missing, empty, cut
    off or of another format, two columns have one name, or a value would change; MisfitError naming the first row of a
    CSV that has too many or too few fields, or a value of another type than `types`. Nothing is unpickled.
    """
    path, types = Path(path), types or {}
    if format and format not in _FORMATS:
        raise ConfigurationError(f"format: expected {', '.join(_FORMATS)}, or empty to look, found {format!r}.")
    if not path.exists():
        raise DeclarationError(
            f"{path}: no such file or Dataset. Check the path, or that the task before has written it."
        )
    match "parquet" if path.is_dir() else format or _look(path):
        case "parquet":
            return _typed(_read_parquet(path), path, types)
        case "jsonl":
            return _typed(_read_json_lines(path), path, types, written=True)
    return _typed(_read_csv(path, types), path, types, written=True)


def write_dataset(table: pa.Table, path: str | Path) -> None:
    """Write a table as one Parquet file; equal tables give equal bytes."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.combine_chunks().replace_schema_metadata(None), path, compression="zstd")


def _look(path: Path) -> str:
    with open(path, "rb") as stream:
        head = stream.read(4096)
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith((b"PAR1", b"{")):
        return "parquet" if text.startswith(b"PAR1") else "jsonl"
    array = "one JSON array (pandas writes lines by to_json(orient='records', lines=True))"
    others = {b"": "nothing", b"[": array, b"\x80": "a pickle, which is never read, as it can run code"}
    if path.suffix == ".parquet" and text[:1] not in others:
        raise DeclarationError(f"{path}: expected Parquet, as its name says, found a beginning other than PAR1.")
    binary = b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))
    if binary or text[:1] in others:
        content = others.get(text[:1], f"bytes that are no text, beginning with {head[:8]!r}")
        raise DeclarationError(f"{path}: expected Parquet, a CSV with a header, or JSON lines, found {content}.")
    return "csv"


def _read_parquet(path: Path) -> pa.Table:
    """One file, or those of a folder but for the notes of what wrote them, whose names begin with `_` or `.`."""
    inside = sorted(path.iterdir()) if path.is_dir() else [path]
    files = [file for file in inside if file == path or not file.name.startswith(("_", "."))]
    tables: list[pa.Table] = []
    for file in files:
        try:
            tables.append(pq.ParquetFile(file).read().replace_schema_metadata(None))
        except (pa.ArrowException, OSError) as error:
            raise DeclarationError(
                f"{file}: expected intact Parquet: {str(error).rstrip('.')}. Write it again."
            ) from None
        if not tables[-1].schema.equals(tables[0].schema):
            raise DeclarationError(f"{file}: expected the columns of {files[0].name}, found others. Write both alike.")
    if not tables:
        raise DeclarationError(f"{path}: expected Parquet files in this folder, found none.")
    return pa.concat_tables(tables)


def _read_json_lines(path: Path) -> pa.Table:
    try:
        table = pa.json.read_json(path)
    except pa.ArrowInvalid as error:
        raise DeclarationError(
            f"{path}: expected one JSON object a line, with one type for each key: {error}. Correct it at the source."
        ) from None
    large = {
        name
        for name, column in zip(table.column_names, table.columns, strict=True)
        if pa.types.is_floating(column.type) and (pc.max(pc.abs(column)).as_py() or 0) >= 2**53
    }
    if large:
        _require_exact(path, large)
    for place, field in enumerate(table.schema):
        if pa.types.is_string(field.type):  # Arrow takes only times of whole seconds for times.
            cells = table[field.name].combine_chunks()
            times = read_texts(cells.cast(pa.binary()), ColumnType.timestamp, zone="UTC")
            if times.fits is None and cells.null_count < len(cells):
                table = table.set_column(place, field.name, times.values)
    return table


def _require_exact(path: Path, doubles: set[str]) -> None:
    with open(path, encoding="utf-8") as lines:
        for row, line in enumerate(lines, 1):
            for name, number in _LONG_NUMBER.findall(line):
                if name in doubles and int(number) != float(number):
                    raise DeclarationError(
                        f"{path}: column {name}, row {row}: expected a number that a double holds exactly, found "
                        f"{number}. Write such numbers as texts."
                    )


def _read_csv(path: Path, types: Types) -> pa.Table:
    """Read by the reader that takes snapshots, which goes by the name of a file: so it gets one here."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, re.sub(r"\W", "_", path.name) + ".csv")
        file.symlink_to(path.resolve())
        try:
            sniffed = sniff(file)
            if any(column.left_out for column in sniffed.columns):
                raise DeclarationError("expected a name for every column, found none (pandas: to_csv(index=False))")
            kinds = {column.name: _kind(column, types) for column in sniffed.columns}
            times = {name: kind for name, kind in kinds.items() if kind is ColumnType.timestamp}
            forms = {column.name: column.form for column in sniffed.columns if column.form and column.name in times}
            read_by = {"delimiter": sniffed.delimiter, "decimal": sniffed.decimal, "encoding": sniffed.encoding}
            percent = [column.name for column in sniffed.columns if column.percent and kinds[column.name] == "double"]
            tables = {"dataset": FileTable(member=file.name, columns=kinds, times=forms, percent=percent, **read_by)}
            source = FolderSource(name="dataset", path=folder, nulls=sniffed.nulls, time_zone="UTC", tables=tables)
            parts = FileReader(source, "", ArtifactStore.open(folder), Path(folder)).parts("dataset", ())
            return pa.concat_tables(part.read().table for part in parts)
        except SourceError as error:
            words = str(error).replace(f"{folder}/", "").rstrip(".")
            kind = type(error) if isinstance(error, NoRowsError | MisfitError) else DeclarationError
            raise kind(f"{path}: {words}. Correct the CSV, or what writes it.") from None


def _kind(column: SniffedColumn, types: Types) -> ColumnType:
    """The type of a column: as declared where the file leaves it open, or has values of other types.

    A number whose name speaks of time stays one, and a day of two readings a text.
    """
    declared, looks = types.get(column.name, ""), column.number or column.kind
    if column.also:
        return ColumnType.string
    if declared and (column.misfits or ColumnType.string in (looks, declared)) and (looks, declared) not in _ALIKE:
        return ColumnType(declared)
    return ColumnType.string if column.misfits and not declared else looks


def _typed(table: pa.Table, path: Path, types: Types, written: bool = False) -> pa.Table:
    """The table with the types of a snapshot; a file that is `written` in text does not tell types that look alike."""
    if repeated := sorted({name for name in table.column_names if table.column_names.count(name) > 1}):
        raise DeclarationError(f"{path}: expected columns of different names, found twice: {', '.join(repeated)}.")
    for place, field in enumerate(table.schema):
        column, declared = table[field.name].combine_chunks(), types.get(field.name, "")
        sniffed = typed_column(field.name, field.type)
        kind = ColumnType(declared) if declared and column.null_count == len(column) else sniffed.kind
        if pa.types.is_null(field.type) or kind is not sniffed.kind:
            column = pa.nulls(len(column), TYPES[kind])
        elif not sniffed.left_out and field.type != TYPES[kind]:
            read = read_as(column, kind, "UTC")
            if read is None or read.fits is not None:
                row = 1 if read is None else pc.index(read.fits, False).as_py() + 1
                raise DeclarationError(
                    f"{path}: column {field.name}, row {row}: expected a value that {kind} holds exactly (times to the "
                    f"microsecond), found a {field.type} that it does not. Convert the column where it is written."
                )
            column = read.values
        if written and (kind, declared) in _ALIKE and (read := read_as(column, ColumnType(declared))):
            column = column if read.fits is not None else read.values
        if pa.types.is_floating(column.type):
            column = pc.if_else(pc.is_nan(column), None, column)
        table = table.set_column(place, field.name, column)
    return table
