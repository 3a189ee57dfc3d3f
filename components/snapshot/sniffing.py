"""What a CSV that nobody declared seems to be: encoding, delimiter, types, times. The whole file is looked at.

DuckDB's sniffer tells the delimiter and whether there is a header. Which type a column has is told by the very
functions that read it into a snapshot, over all rows, so that what is declared here is what is read there.
"""

import codecs
import csv
import gzip
import io
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.components.artifacts.database import connect
from gatehouse.components.snapshot.sources.csv_texts import read_texts
from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError

_ENDINGS = (".csv", ".tsv", ".txt")
_ROWS_AT_ONCE = 50_000
_MOST_MISFITS = 0.005
_NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", "\\N", "#N/A", ".")
_DEFAULT_NULLS = ("", "NA")
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%b %d %Y", "%d %b %Y", "%d-%b-%Y", "%B %d, %Y")
_FORMATS = (*(f"{day}{clock}" for day in _DAYS for clock in ("", " %H:%M", " %H:%M:%S")), "%m/%d/%y")
_OF_WINDOWS = re.compile(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]")
_SPANS = {"seconds": (1e8, 4e9), "milliseconds": (1e11, 4e12), "microseconds": (1e14, 4e15)}
_TIME_WORDS = ("time", "date", "when", "stamp", "epoch", "created", "updated", "_at", " at", "ts")


@dataclass(frozen=True)
class SniffedColumn:
    """A column.

    Attributes:
        name: Its name in the header; a column without one is left out of a snapshot.
        kind: The type that its values have.
        form: How it writes times, as `times` of a table has it.
        decimal: The decimal sign of its doubles.
        naive: Whether its times state no zone.
        rows: Rows with a value.
        misfits: Those that have another type; they would be rejected.
        also: Another format that all its times fit too; empty for none.
    """

    name: str
    kind: ColumnType
    form: str = ""
    decimal: str = "."
    naive: bool = False
    rows: int = 0
    misfits: int = 0
    also: str = ""


@dataclass(frozen=True)
class Sniffed:
    """A file.

    Attributes:
        encoding: Of its text.
        delimiter: Between its cells; empty for Parquet, which has types.
        decimal: Of its numbers.
        nulls: Texts that stand for a missing value.
        columns: In the order of the file.
        rows: How many rows it has.
        event_time: The column whose times order the rows; empty for none.
    """

    encoding: str
    delimiter: str
    decimal: str
    nulls: tuple[str, ...]
    columns: tuple[SniffedColumn, ...]
    rows: int
    event_time: str = ""

    def ordered_by(self, time: str) -> "Sniffed":
        """The file with another column for its time; with none, all its times are texts."""
        if time:
            return replace(self, event_time=time)
        texts = (
            SniffedColumn(one.name, ColumnType.string, rows=one.rows) if one.kind is ColumnType.timestamp else one
            for one in self.columns
        )
        return replace(self, event_time="", columns=tuple(texts))

    @property
    def named(self) -> tuple[SniffedColumn, ...]:
        """The columns that have a name."""
        return tuple(column for column in self.columns if column.name)


@dataclass(frozen=True)
class _Candidate:
    """A way to read a column."""

    kind: ColumnType
    form: str = ""
    decimal: str = "."
    zone: str = ""


@dataclass
class _Column:
    """What is known of a column so far."""

    name: str
    candidates: dict[_Candidate, int]
    """Ways to read it that are still possible, with how many values do not fit."""
    rows: int = 0
    nulls: set[str] = field(default_factory=set)
    low: float = float("inf")
    high: float = float("-inf")


def sniff(path: Path) -> Sniffed:
    """Look at a CSV file, also a gzipped one, or at Parquet. The first column of times orders the rows.

    Raises:
        SourceError: if it is no CSV with a header, and no Parquet.
    """
    found = _parquet(path) if path.suffix.lower() == ".parquet" and path.is_file() else _csv(path)
    return replace(found, event_time=next((one.name for one in found.named if one.kind is ColumnType.timestamp), ""))


def _parquet(path: Path) -> Sniffed:
    try:
        with pq.ParquetFile(path) as file:
            schema, rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowInvalid, OSError) as error:
        raise SourceError(f"{path}: is not intact Parquet: {error}. Fetch it again.") from error
    return Sniffed("utf-8", "", ".", _DEFAULT_NULLS, tuple(_typed(each, rows) for each in schema), rows)


def _typed(found: pa.Field, rows: int) -> SniffedColumn:
    """A column of Parquet; what is neither number, bool nor time is a text."""
    kinds = {
        ColumnType.bool: pa.types.is_boolean,
        ColumnType.int64: pa.types.is_integer,
        ColumnType.double: lambda kind: pa.types.is_floating(kind) or pa.types.is_decimal(kind),
        ColumnType.timestamp: lambda kind: pa.types.is_timestamp(kind) or pa.types.is_date(kind),
    }
    kind = next((kind for kind, fits in kinds.items() if fits(found.type)), ColumnType.string)
    naive = kind is ColumnType.timestamp and getattr(found.type, "tz", None) is None
    return SniffedColumn(found.name, kind, naive=naive, rows=rows)


def _csv(path: Path) -> Sniffed:
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if not path.is_file() or not suffixes or suffixes[-1] not in _ENDINGS:
        raise SourceError(f"{path}: expected a CSV ({', '.join(_ENDINGS)}, also .gz) or Parquet file, found none.")
    with _in_utf8(path) as (plain, encoding), connect() as connection:
        delimiter = _delimiter(connection, plain, path.name)
        header = _header(plain, delimiter)
        columns = [_Column(name, dict.fromkeys(_candidates(), 0)) for name in header]
        rows = 0
        for batch in _batches(connection, plain, delimiter):
            rows += batch.num_rows
            for column, cells in zip(columns, batch.columns, strict=True):
                _look(column, cells)
    if not rows:
        raise SourceError(f"{path.name}: expected rows below the header, found none.")
    told = [_told(column) for column in columns]
    decimal = next((column.decimal for column in told if column.decimal == ","), ".")
    told = [_with_decimal(column, one, decimal) for column, one in zip(columns, told, strict=True)]
    seen = {
        null
        for column, one in zip(columns, told, strict=True)
        for null in column.nulls
        if one.kind is not ColumnType.string
    }
    nulls = (*_DEFAULT_NULLS, *sorted(seen - set(_DEFAULT_NULLS)))
    return Sniffed(encoding, delimiter, decimal, nulls, tuple(told), rows)


@contextmanager
def _in_utf8(path: Path) -> Iterator[tuple[Path, str]]:
    """The text of a file as a plain file in UTF-8, and its encoding."""
    encoding = _encoding(path)
    with tempfile.TemporaryDirectory(prefix="gatehouse-sniff-") as folder:
        plain = Path(folder) / "plain.csv"
        read_as = "utf-8-sig" if encoding == "utf-8" else encoding
        with (
            _opened(path) as raw,
            io.TextIOWrapper(raw, encoding=read_as, newline="") as text,
            open(plain, "w", encoding="utf-8", newline="") as target,
        ):
            shutil.copyfileobj(text, target)
        yield plain, encoding


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def _encoding(path: Path) -> str:
    """UTF-16 by its mark, UTF-8 where all bytes are; else one of western Europe: that of Windows has letters more."""
    decoder, of_windows = codecs.getincrementaldecoder("utf-8")(), False
    is_utf8 = True
    with _opened(path) as stream:
        data = stream.read(2**20)
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        while data:
            try:
                is_utf8 = is_utf8 and decoder.decode(data) is not None
            except UnicodeDecodeError:
                is_utf8 = False
            of_windows = of_windows or _OF_WINDOWS.search(data) is not None
            data = stream.read(2**20)
    if is_utf8 and not decoder.getstate()[0]:
        return "utf-8"
    return "cp1252" if of_windows else "latin-1"


def _delimiter(connection: duckdb.DuckDBPyConnection, plain: Path, name: str) -> str:
    try:
        found = connection.sql(f"SELECT Delimiter, HasHeader, SkipRows FROM sniff_csv('{plain}')").fetchall()
    except duckdb.Error as error:
        raise SourceError(f"{name}: no delimiter gives rows of one width: {error}") from error
    delimiter, has_header, skipped = found[0]
    if skipped:
        raise SourceError(f"{name}: {skipped} lines stand before the table. Remove them: a header is the first line.")
    if not has_header:
        # A header over columns of texts looks like a row of them to the sniffer.
        first, second = _first_rows(plain, delimiter)
        if any(_is_number(cell) for cell in first) or len({*first}) < len(first) or not second:
            raise SourceError(f"{name}: expected a header in the first line, found {first[:4]}. Add one.")
    return str(delimiter)


def _first_rows(plain: Path, delimiter: str) -> tuple[list[str], list[str]]:
    with open(plain, encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream, delimiter=delimiter)
        return next((row for row in rows if row), []), next((row for row in rows if row), [])


def _header(plain: Path, delimiter: str) -> list[str]:
    return _first_rows(plain, delimiter)[0]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _batches(connection: duckdb.DuckDBPyConnection, plain: Path, delimiter: str) -> Iterator[pa.RecordBatch]:
    """All rows of a file as texts; rows of another width are left out."""
    escaped = delimiter.replace("'", "''")
    query = (
        f"SELECT * FROM read_csv('{plain}', all_varchar=true, header=true, delim='{escaped}', quote='\"', escape='\"', "
        "ignore_errors=true, nullstr='')"
    )
    yield from connection.sql(query).to_arrow_reader(_ROWS_AT_ONCE)


def _candidates() -> Iterator[_Candidate]:
    yield _Candidate(ColumnType.bool)
    yield _Candidate(ColumnType.int64)
    yield _Candidate(ColumnType.double)
    yield _Candidate(ColumnType.double, decimal=",")
    yield _Candidate(ColumnType.timestamp)
    for form in ("", *_FORMATS):
        yield _Candidate(ColumnType.timestamp, form, zone="UTC")


def _look(column: _Column, cells: pa.Array) -> None:
    """Take some cells of a column into account."""
    nulls = pc.is_in(cells, pa.array(_NULLS))
    column.nulls |= set(pc.unique(cells.filter(nulls)).to_pylist())
    held = cells.filter(pc.and_(pc.invert(nulls), cells.is_valid())).cast(pa.binary())
    column.rows += len(held)
    if not len(held):
        return
    head = held.slice(0, 200)
    for candidate in list(column.candidates):
        if column.candidates[candidate] == 0 and _misfits(head, candidate) > len(head) // 2:
            del column.candidates[candidate]
            continue
        column.candidates[candidate] += _misfits(held, candidate)
        if column.candidates[candidate] > _MOST_MISFITS * max(column.rows, 200):
            del column.candidates[candidate]
    if any(one.kind is ColumnType.int64 or one.decimal == "." for one in column.candidates):
        span = pc.min_max(read_texts(held, ColumnType.double, decimal=".", zone="", form="").values).as_py()
        if span["min"] is not None:
            column.low, column.high = min(column.low, span["min"]), max(column.high, span["max"])


def _misfits(cells: pa.Array, candidate: _Candidate) -> int:
    read = read_texts(cells, candidate.kind, decimal=candidate.decimal, zone=candidate.zone, form=candidate.form)
    return 0 if read.fits is None else int(pc.sum(pc.invert(read.fits)).as_py() or 0)


def _told(column: _Column) -> SniffedColumn:
    """The first way to read a column of those that fit most of its values; a text where none does."""
    if not column.rows or not column.candidates:
        return SniffedColumn(column.name, ColumnType.string, rows=column.rows)
    fewest = min(column.candidates.values())
    best = [candidate for candidate, misfits in column.candidates.items() if misfits == fewest]
    chosen = best[0]
    if chosen.kind is ColumnType.bool and any(one.kind is ColumnType.int64 for one in best):
        chosen = next(one for one in best if one.kind is ColumnType.int64)  # 0 and 1
    if unit := _unit(column, chosen):
        chosen = _Candidate(ColumnType.timestamp, unit)
    others = [one.form for one in best if one.form and one != chosen and chosen.form in _FORMATS]
    naive = chosen.kind is ColumnType.timestamp and bool(chosen.zone)
    return SniffedColumn(
        column.name, chosen.kind, chosen.form, chosen.decimal, naive, column.rows, fewest, others[0] if others else ""
    )


def _unit(column: _Column, chosen: _Candidate) -> str:
    """The unit since 1970 that a column of numbers is in, where its name and all its values say so."""
    if chosen.kind not in (ColumnType.int64, ColumnType.double) or chosen.decimal != ".":
        return ""
    if not any(word in column.name.lower() for word in _TIME_WORDS):
        return ""
    return next((unit for unit, (low, high) in _SPANS.items() if low <= column.low and column.high <= high), "")


def _with_decimal(column: _Column, told: SniffedColumn, decimal: str) -> SniffedColumn:
    """A column as it is with the decimal sign of the file: numbers with another one are texts."""
    wrong = told.kind is ColumnType.double and told.decimal != decimal
    return SniffedColumn(column.name, ColumnType.string, rows=column.rows) if wrong else told


def source_of(sniffed: Sniffed, path: Path, name: str, delivered: str) -> dict[str, Any]:
    """The declaration that reads a file as it was told, as `source` of a project has it.

    A file without times is read by a query that gives all rows one, and the row's number as a key.

    Args:
        sniffed: What was told.
        path: The file.
        name: Of the source and its table.
        delivered: The time that all rows have where they have none of their own, ISO 8601 in UTC.

    Raises:
        SourceError: if no column has a name, or a file without times is in an encoding that DuckDB does not read.
    """
    columns = {column.name: str(column.kind) for column in sniffed.named}
    if not columns:
        raise SourceError(f"{path.name}: expected columns with names, found none.")
    zone = {"time_zone": "UTC"} if any(column.naive for column in sniffed.named) else {}
    rejecting: dict[str, Any] = {"on_invalid": "reject", "reject_limit": 2 * _MOST_MISFITS}
    if not sniffed.event_time:
        if sniffed.encoding == "cp1252":
            raise SourceError(f"{path.name}: has no column of times, and is written in cp1252. Save it in UTF-8.")
        query = _query(sniffed, path, delivered)
        columns = {"row_number": "int64", "delivered_at": "timestamp", **columns}
        whole = {"query": query, "columns": columns, "event_time": "delivered_at", "order_by": ["row_number"]}
        return {"name": name, "kind": "sql", "url": "duckdb:///:memory:", "time_zone": "UTC", "tables": {name: whole}}
    table: dict[str, Any] = {"member": path.name, "columns": columns, "event_time": sniffed.event_time, **rejecting}
    defaults = {"delimiter": "," if sniffed.delimiter else "", "decimal": ".", "encoding": "utf-8"}
    table |= {key: found for key, default in defaults.items() if (found := getattr(sniffed, key)) != default}
    if times := {column.name: column.form for column in sniffed.named if column.form}:
        table["times"] = times
    if len(sniffed.named) < len(sniffed.columns):
        table["guards"] = {"new_column": "accept"}  # what has no name
    nulls = {"nulls": list(sniffed.nulls)} if sniffed.nulls != _DEFAULT_NULLS else {}
    return {"name": name, "kind": "files", "path": str(path.parent), **zone, **nulls, "tables": {name: table}}


_SQL = {
    ColumnType.int64: "BIGINT",
    ColumnType.double: "DOUBLE",
    ColumnType.bool: "BOOLEAN",
    ColumnType.string: "VARCHAR",
}


def _query(sniffed: Sniffed, path: Path, delivered: str) -> str:
    names = ", ".join('"' + column.name.replace('"', '""') + '"' for column in sniffed.named)
    numbered = f"SELECT row_number() OVER () AS row_number, TIMESTAMP {_quoted(delivered)} AS delivered_at, {names}\n"
    if not sniffed.delimiter:
        return f"{numbered}FROM read_parquet({_quoted(str(path))})"
    types = _literal(
        {column.name or f"column{index}": _SQL[column.kind] for index, column in enumerate(sniffed.columns)}
    )
    nulls = ", ".join(_quoted(null) for null in sniffed.nulls)
    return (
        f"{numbered}FROM read_csv({_quoted(str(path))}, header = true,\n"
        f"  delim = {_quoted(sniffed.delimiter)}, quote = '\"',\n"
        f"  decimal_separator = {_quoted(sniffed.decimal)}, encoding = {_quoted(sniffed.encoding)},\n"
        f"  nullstr = [{nulls}], columns = {types})"
    )


def _literal(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in types.items()) + "}"


def _quoted(text: str) -> str:
    escaped = text.replace("'", "''")
    return f"'{escaped}'"
