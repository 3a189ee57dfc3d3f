"""Infers how a CSV or Parquet file that nobody declared is read: encoding, delimiter, types, times.

The whole file is looked at, by the reader that then takes the snapshot. If at most one value of twenty in a column does
not fit, the others still decide its type.
"""

import codecs
import csv
import gzip
import io
import itertools
import math
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from gatehouse.data.snapshot.spec import EPOCHS, ColumnType, Guards, TableSpec
from gatehouse.data.sources.declared import plain_array, read_as, read_texts
from gatehouse.data.sources.file_reader import FileReader
from gatehouse.data.sources.files import FileTable, FolderSource
from gatehouse.errors import DeclarationError, NoRowsError
from gatehouse.store.database import connect, out_of_memory, quoted
from gatehouse.store.store import ArtifactStore

NULLS = ("", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", "\\N", "#N/A", ".")
_MOST_MISFITS = 0.05
_HEAD = 200
_LIKE_A_DAY = r"^(?:\d{1,4}|[A-Za-z]{3,9})[-./ ](?:\d{1,2}|[A-Za-z]{3}),?[-./ ]\d"
_PADDED = r"^[ \t]*[+-]?0\d+[ \t]*$"
_LONG = r"^[ \t]*[+-]?0*[1-9]\d{15,}[ \t]*$"
_CODE = r"^[ \t]*\d+[Ee]\d+[ \t]*$"
"""A number with an exponent as no program writes it, but as codes are: 1E3."""
_FRACTION = r"[.,](?P<digits>\d+)[ \t]*$"
_DAYS = ("%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y", "%d-%b-%Y")
_DAYS_IN_WORDS = ("%b %d %Y", "%d %b %Y", "%B %d, %Y")
_DAYS_OF_SHORT_YEARS = ("%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%d-%m-%y", "%m-%d-%y")
_EVERY_DAY = (*_DAYS, *_DAYS_IN_WORDS, *_DAYS_OF_SHORT_YEARS)
_FORMATS = tuple(f"{day}{clock}" for day in _EVERY_DAY for clock in ("", " %H:%M", " %H:%M:%S"))
_THOUSANDS = {sign: rf"^[+-]?[1-9]\d{{0,2}}(?:[{sign}]\d{{3}})+$" for sign in ".,"}
_TIME_WORD = re.compile("times?|dates?|datetime|timestamp|when|epoch|created|updated|at|ts")
_NO_TIMES = {"id", "ids", "by"}
"""Words that, after a word for a time, make it something else, as in created_by."""
_YEARS = (631_152_000, 4_102_444_800)
"""The years 1990 to 2100, in seconds since 1970."""


@dataclass(frozen=True)
class SniffedColumn:
    """A column.

    Attributes:
        form: How it writes times, as `times` of a table has it.
        percent: Whether its numbers have a percent sign.
        naive: Whether its times state no zone.
        misfits: Values of another type; their rows would be rejected, or they make the column a text.
        almost: The type that most values of a text column have.
        why_text: Why numbers of it are read as text.
        also: Another format that all its times fit.
        epoch: The unit in which its numbers are times of the years 1990 to 2100 since 1970.
        number: The type of the numbers that its name made times.
    """

    name: str
    kind: ColumnType
    form: str = ""
    decimal: str = "."
    percent: bool = False
    naive: bool = False
    misfits: int = 0
    almost: str = ""
    why_text: str = ""
    also: str = ""
    epoch: str = ""
    left_out: str = ""
    number: ColumnType | None = None


@dataclass(frozen=True)
class _Candidate:
    """A way to read a column."""

    kind: ColumnType
    form: str = ""
    decimal: str = "."
    percent: bool = False
    zone: str = ""

    def misfits(self, cells: pa.Array) -> pa.Array:
        read = read_texts(cells, self.kind, decimal=self.decimal, percent=self.percent, zone=self.zone, form=self.form)
        return cells.slice(0, 0) if read.fits is None else cells.filter(pc.invert(read.fits))


_NUMBERS = ((",", False), (".", True), (",", True))
_CANDIDATES = (
    _Candidate(ColumnType.int64),
    _Candidate(ColumnType.bool),
    _Candidate(ColumnType.double),
    *(_Candidate(ColumnType.double, decimal=decimal, percent=percent) for decimal, percent in _NUMBERS),
    _Candidate(ColumnType.timestamp),
    *(_Candidate(ColumnType.timestamp, form, zone="UTC") for form in ("", *_FORMATS)),
)


class TextColumn:
    """The cells of a column of a CSV so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nulls: Counter[str] = Counter()
        """Cells that may stand for a missing value."""
        self.clear = {".": False, ",": False}
        """Whether a value has this sign where it cannot stand between thousands."""
        self._signed = {".": False, ",": False}
        self._misfits = dict.fromkeys(_CANDIDATES, 0)
        """Ways to read the column that are still possible, with how many values do not fit."""
        self._rows = self._padded = self._long = self._codes = 0
        self._decimals: set[int] = set()
        self._trailing_zero = False
        self._low, self._high = float("inf"), float("-inf")

    def look(self, cells: pa.Array, marks: pa.Array) -> None:
        """Add cells, shape (rows,), null if empty; `marks` are texts that may stand for a missing value."""
        missing = pc.is_in(cells, marks)
        counts = pc.value_counts(cells.filter(missing)).to_pylist()
        self.nulls.update({count["values"]: count["counts"] for count in counts})
        self.nulls[""] += cells.null_count
        texts = cells.filter(pc.and_(pc.invert(missing), cells.is_valid()))
        data = texts.cast(pa.binary())
        if not len(data):
            return
        if not self._rows:
            sample = data.take(pa.array(range(0, len(data), -(-len(data) // _HEAD))))
            like_days = 2 * _matching(sample, _LIKE_A_DAY) >= len(sample)  # Each format takes long to try.
            possible = (candidate for candidate in _CANDIDATES if like_days or not candidate.form)
            self._misfits = {way: 0 for way in possible if 2 * len(way.misfits(sample)) <= len(sample)}
        self._rows += len(data)
        for candidate in list(self._misfits):
            self._misfits[candidate] += len(candidate.misfits(data))
            if 2 * self._misfits[candidate] > self._rows:
                del self._misfits[candidate]
        if any(candidate.kind is not ColumnType.timestamp for candidate in self._misfits):
            self._padded += _matching(texts, _PADDED)
            self._long += _matching(texts, _LONG)
            self._codes += _matching(texts, _CODE)
            digits = pc.struct_field(pc.extract_regex(texts, _FRACTION), "digits")
            self._decimals |= set(pc.unique(pc.binary_length(digits).drop_null()).to_pylist())
            self._trailing_zero |= _matching(digits, r".0$") > 0
            span = pc.min_max(read_texts(data, ColumnType.double).values).as_py()
            if span["min"] is not None:
                self._low, self._high = min(self._low, span["min"]), max(self._high, span["max"])
            for sign, pattern in _THOUSANDS.items():
                signed = texts.filter(pc.match_substring(texts, sign))
                self._signed[sign] |= len(signed) > 0
                self.clear[sign] |= _matching(signed, pattern) < len(signed)

    def sniffed(self) -> SniffedColumn:
        """The first way to read the column among those that fit nearly all of its values; a text if none does."""
        text = SniffedColumn(self.name, ColumnType.string)
        if not self._rows or not self._misfits:
            return text
        fewest = min(self._misfits.values())
        best = [candidate for candidate, misfits in self._misfits.items() if misfits == fewest]
        chosen = best[0]
        number = chosen.kind in (ColumnType.int64, ColumnType.double)
        if number and self._padded:
            return replace(text, why_text=f"{self._padded:,} of its numbers begin with 0, which a number would lose")
        if chosen.kind is ColumnType.double and self._long:
            return replace(text, why_text=f"{self._long:,} of its numbers have over 15 digits, which a double loses")
        if chosen.kind is ColumnType.double and self._codes:
            return replace(text, why_text=f"{self._codes:,} of its numbers are written as codes are, such as 1E3")
        if chosen.kind is ColumnType.double and self._trailing_zero and len(self._decimals) > 1:
            why = "some of its numbers end in a zero, as 1.10 beside 1.1, which a number would lose"
            return replace(text, why_text=why)
        text = replace(text, misfits=fewest)
        if fewest > max(1, _MOST_MISFITS * self._rows):
            return replace(text, almost=str(chosen.kind))
        column = replace(text, kind=chosen.kind, form=chosen.form, decimal=chosen.decimal, percent=chosen.percent)
        if chosen.kind is ColumnType.timestamp:
            also = next((other.form for other in best[1:] if chosen.form and other.form), "")
            return replace(column, naive=bool(chosen.zone), also=also)
        return with_epoch(column, self._low, self._high) if number and chosen.decimal == "." else column

    def with_decimal(self, column: SniffedColumn, decimal: str, delimiter: str, sure: bool) -> SniffedColumn:
        """The column with the decimal sign of the file; numbers that it may change a thousandfold stay texts.

        Next to semicolons points often stand between thousands, unless some column makes `sure` that they are decimal
        signs.
        """
        ambiguous = self._signed[column.decimal] and not self.clear[column.decimal]
        if column.kind is not ColumnType.double:
            return column
        if column.decimal != decimal:
            why = f"its numbers have the decimal sign {column.decimal!r}, the file has {decimal!r}"
        elif ambiguous and not sure and (decimal == "," or delimiter == ";"):
            why = f"its signs {decimal!r} may stand between thousands or before decimals"
        else:
            return column
        return SniffedColumn(column.name, ColumnType.string, why_text=why)


def _matching(texts: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0)


def with_epoch(column: SniffedColumn, low: float, high: float) -> SniffedColumn:
    """A column of numbers from `low` to `high` as times, if its name suggests it and all are of the years 1990 to 2100.

    Without such a name, `epoch` says that they may be.
    """
    first, last = _YEARS
    factors = {unit: 10 ** (6 - digits) for unit, digits in EPOCHS.items()}
    unit = next((unit for unit, factor in factors.items() if first * factor <= low <= high <= last * factor), "")
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", column.name).lower())
    named = max((place for place, word in enumerate(words) if _TIME_WORD.fullmatch(word)), default=len(words))
    if unit and named < len(words) and not _NO_TIMES.intersection(words[named:]):
        return replace(column, kind=ColumnType.timestamp, form=unit, number=column.kind)
    return replace(column, epoch=unit)


def typed_column(name: str, declared: pa.DataType) -> SniffedColumn:
    """How a column of Parquet is read, by its type."""
    kind = plain_array(pa.array([], declared)).type
    types = pa.types
    if types.is_boolean(kind):
        chosen = ColumnType.bool
    elif types.is_integer(kind) or types.is_duration(kind) or (types.is_decimal(kind) and kind.scale <= 0):
        chosen = ColumnType.int64
    elif types.is_floating(kind) or types.is_decimal(kind):
        chosen = ColumnType.double
    elif types.is_timestamp(kind) or types.is_date(kind):
        return SniffedColumn(name, ColumnType.timestamp, naive=getattr(kind, "tz", None) is None)
    elif types.is_null(kind) or read_as(pa.array([], kind), ColumnType.string):
        chosen = ColumnType.string
    else:
        return SniffedColumn(name, ColumnType.string, left_out=f"a snapshot cannot hold the type {kind}")
    return SniffedColumn(name, chosen)


USUAL_LIMIT: float = TableSpec.model_fields["reject_limit"].default
_ROOM = 1.5
_DEFAULT_NULLS = ("", "NA")
_DELIVERED = "delivered_at"
_ENDINGS = (".csv", ".tsv", ".txt")
_WINDOWS_LETTERS = re.compile(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]")
_DELIMITERS = ",;\t|"
_ROWS_CUT = 20_000
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class Sniffed:
    """A file; the delimiter is empty for Parquet, and `event_time` for a file without times.

    `uneven` rows have other than the header's number of cells and would be rejected. `missing_as` are those of `nulls`
    that occur in a CSV.
    """

    encoding: str
    delimiter: str
    decimal: str
    nulls: tuple[str, ...]
    columns: tuple[SniffedColumn, ...]
    rows: int
    uneven: int = 0
    event_time: str = ""
    missing_as: tuple[str, ...] = ()

    def ordered_by(self, time: str) -> "Sniffed":
        """The file with another column for its time, also of numbers since 1970; with none, its times are texts."""

        def changed(column: SniffedColumn) -> SniffedColumn:
            if column.name == time and column.epoch:
                return replace(column, kind=ColumnType.timestamp, form=column.epoch)
            if not time and column.kind is ColumnType.timestamp:
                return replace(column, kind=ColumnType.string, form="", naive=False, misfits=0, also="")
            return column

        return replace(self, event_time=time, columns=tuple(map(changed, self.columns)))

    @property
    def kept(self) -> tuple[SniffedColumn, ...]:
        """The columns that a snapshot has."""
        return tuple(column for column in self.columns if not column.left_out)

    @property
    def delivered(self) -> str:
        """The column that a file without times gets for its time: delivered_at, or with a number if it has one."""
        names = {column.name.lower() for column in self.columns}
        numbered = (f"{_DELIVERED}_{number}" for number in itertools.count(2))
        return next(name for name in itertools.chain((_DELIVERED,), numbered) if name not in names)

    @property
    def reject_limit(self) -> float:
        """The share of rows that may be rejected: the usual one, two rows, or half as many again as the file has."""
        rows = max(self.rows + self.uneven, 1)
        rejected = self.uneven + sum(column.misfits for column in self.kept if not column.almost)
        limit = max(USUAL_LIMIT, min(1.0, max(2, _ROOM * rejected) / rows))
        return math.ceil(limit * 10**4) / 10**4


def sniff(path: Path, nulls: Sequence[str] = ()) -> Sniffed:
    """Look at a CSV file, also a gzipped one, or at Parquet. The first column of times orders the rows.

    Raises DeclarationError if it is no CSV with a header, and no Parquet, or if it is Parquet and `nulls` are named.
    """
    if not path.is_file():
        raise DeclarationError(f"{path}: no such file.")
    parquet = path.suffix.lower() == ".parquet"
    if parquet and nulls:
        raise DeclarationError(f"--nulls: expected a CSV, found {path.name}: in Parquet a missing value is a null.")
    sniffed = _sniff_parquet(path) if parquet else _sniff_csv(path, nulls)
    columns = tuple(column if column.name else replace(column, left_out="it has no name") for column in sniffed.columns)
    times = (column.name for column in columns if column.kind is ColumnType.timestamp and not column.left_out)
    return replace(sniffed, columns=columns, event_time=next(times, ""))


def _sniff_parquet(path: Path) -> Sniffed:
    try:
        schema = pq.read_schema(path)
        _require_different(schema.names, path)
        with connect() as connection:
            connection.read_parquet(str(path)).create_view("cells")
            columns = []
            for field in schema:
                column = typed_column(field.name, field.type)
                if pa.types.is_integer(field.type):
                    cell = quoted(field.name)
                    low, high = connection.execute(f"SELECT min({cell}), max({cell}) FROM cells").fetchall()[0]
                    column = column if low is None else with_epoch(column, low, high)
                columns.append(column)
    except (pa.ArrowInvalid, OSError) as error:
        raise DeclarationError(f"{path}: is not intact Parquet: {error}. Fetch it again.") from error
    except duckdb.OutOfMemoryException as error:
        raise out_of_memory(error, f"Reading {path.name}") or error from error
    except duckdb.Error:  # Its words may quote a value.
        raise DeclarationError(
            f"{path.name}: expected values that DuckDB can read, found one that it cannot. Correct it at the source."
        ) from None
    return Sniffed("utf-8", "", ".", _DEFAULT_NULLS, tuple(columns), pq.read_metadata(path).num_rows)


def _sniff_csv(path: Path, nulls: Sequence[str]) -> Sniffed:
    if not set(_ENDINGS) & {suffix.lower() for suffix in path.suffixes[-2:]}:
        raise DeclarationError(
            f"{path}: expected a CSV ({', '.join(_ENDINGS)}, also .gz) or a Parquet file (.parquet), by its ending."
        )
    try:
        encoding = _encoding(path)
        delimiter, header = _shape(path, encoding)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DeclarationError(f"{path}: is not intact gzip: {error}. Fetch it again.") from None
    except UnicodeError:
        raise DeclarationError(
            f"{path}: expected text in UTF-8, UTF-16, cp1252 or latin-1, found bytes that are none."
        ) from None
    texts = [TextColumn(name) for name in header]
    rows, uneven, marks = 0, 0, pa.array({*NULLS, *nulls})
    table = FileTable(
        member=path.name,
        delimiter=delimiter,
        encoding=encoding,
        columns=dict.fromkeys(header, ColumnType.string),
        on_invalid="reject",
        guards=Guards(new_column="accept"),
    )
    source = FolderSource(name="sniffed", path=str(path.parent), nulls=("",), tables={path.name: table})
    with tempfile.TemporaryDirectory() as scratch:
        reader = FileReader(source, "", ArtifactStore.open(scratch), Path(scratch))
        for part in reader.parts(path.name, ()):
            raw = part.read()
            rows += raw.table.num_rows
            uneven += raw.rejected.num_rows if raw.rejected is not None else 0
            for column, cells in zip(texts, raw.table.columns, strict=True):
                column.look(cells.combine_chunks(), marks)
    if not rows:
        raise NoRowsError(f"{path.name}: expected rows below the header, found none.")
    pairs = [(column, column.sniffed()) for column in texts]
    doubles = [(text, column.decimal) for text, column in pairs if column.kind is ColumnType.double]
    decimal = "," if delimiter != "," and any(text.clear[","] and sign == "," for text, sign in doubles) else "."
    sure = any(text.clear[decimal] and sign == decimal for text, sign in doubles)
    pairs = [(text, text.with_decimal(column, decimal, delimiter, sure)) for text, column in pairs]
    marked = {mark for text, column in pairs if column.kind is not ColumnType.string for mark in text.nulls}
    all_nulls = (*_DEFAULT_NULLS, *sorted({*marked, *nulls} - set(_DEFAULT_NULLS)))
    columns = tuple(column for _, column in pairs)
    missing_as = tuple(null for null in all_nulls if any(text.nulls[null] for text in texts))
    return Sniffed(encoding, delimiter, decimal, all_nulls, columns, rows, uneven, missing_as=missing_as)


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def _encoding(path: Path) -> str:
    """UTF-16 by its mark, UTF-8 if all bytes are; else cp1252 if it has letters that only this has, or latin-1."""
    decoder, is_utf8, of_windows, first = codecs.getincrementaldecoder("utf-8")(), True, False, True
    with _opened(path) as stream:
        while data := stream.read(2**20):
            if first and data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                return "utf-16"
            if b"\0" in data:
                raise DeclarationError(f"{path}: expected text, found a NUL byte. Save it as CSV in UTF-8.")
            try:
                is_utf8 = is_utf8 and decoder.decode(data) is not None
            except UnicodeDecodeError:
                is_utf8 = False
            of_windows = of_windows or _WINDOWS_LETTERS.search(data) is not None
            first = False
    if first:
        raise DeclarationError(f"{path.name}: expected a header and rows below it, found an empty file.")
    if is_utf8 and not decoder.getstate()[0]:
        return "utf-8"
    return "cp1252" if of_windows else "latin-1"


def _shape(path: Path, encoding: str) -> tuple[str, list[str]]:
    """The delimiter that cuts most of the first rows into one number of cells, and the header.

    DuckDB's sniffer takes the comma for a file of semicolons with a few bad rows. No cell is shown: it may be that of a
    person.
    """

    def cut(delimiter: str) -> tuple[tuple[bool, int, int], str, list[list[str]]]:
        read_as = "utf-8-sig" if encoding == "utf-8" else encoding
        with _opened(path) as raw, io.TextIOWrapper(raw, encoding=read_as, newline="") as text:
            rows = [row for row in itertools.islice(csv.reader(text, delimiter=delimiter), _ROWS_CUT) if row]
        width, count = Counter(map(len, rows)).most_common(1)[0] if rows else (0, 0)
        return (width > 1, count, width), delimiter, rows

    (_, _, width), delimiter, rows = max((cut(delimiter) for delimiter in _DELIMITERS), key=lambda shape: shape[0])
    first, second = [*rows, [], []][:2]
    if first and first[0].startswith("{"):
        raise DeclarationError(f"{path.name}: expected a CSV, found JSON. Write it as CSV or Parquet.")
    if len(first) != width or not first:
        raise DeclarationError(
            f"{path.name}: expected a header of {width} cells, as most rows have, found a first line of {len(first)}. "
            "Correct the first line; the header is the first line of the file."
        )
    for place, (above, below) in enumerate(zip(first, second, strict=False), 1):
        if _is_number(above) and _is_number(below):
            raise DeclarationError(
                f"{path.name}: expected a header in the first line, but cell {place} of it is a number, as the cell "
                "below it is. Add a line with the names of the columns, none of which is a number."
            )
    _require_different(first, path)
    return delimiter, first


def _require_different(columns: Sequence[str], path: Path) -> None:
    if repeated := [str(place) for place, column in enumerate(columns, 1) if columns.count(column) > 1]:
        raise DeclarationError(
            f"{path.name}: expected columns with different names, found one name for several of the columns "
            f"{', '.join(repeated)}. Rename them."
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def source_of(sniffed: Sniffed, path: Path, name: str, delivered: str) -> dict[str, Any]:
    """The declaration that reads a file as it was sniffed, as `source` of a project has it.

    A file without times gets one that all its rows have, in a column of its own. Raises DeclarationError if every
    column is left out.
    """
    columns = {column.name: str(column.kind) for column in sniffed.kept}
    if not columns:
        why = "; ".join(f"{column.name or 'a column'}: {column.left_out}" for column in sniffed.columns)
        raise DeclarationError(f"{path.name}: expected a column that a snapshot can hold, found none ({why}).")
    zone = {"time_zone": "UTC"} if any(column.naive for column in sniffed.kept) else {}
    table: dict[str, Any] = {"member": path.name, "on_invalid": "reject", "reject_limit": sniffed.reject_limit}
    if sniffed.event_time:
        table |= {"columns": columns, "event_time": sniffed.event_time}
    else:
        time = sniffed.delivered
        table |= {"columns": {time: "timestamp", **columns}, "event_time": time, "delivered": delivered}
    defaults = {"delimiter": "," if sniffed.delimiter else "", "decimal": ".", "encoding": "utf-8"}
    table |= {key: value for key, default in defaults.items() if (value := getattr(sniffed, key)) != default}
    if percent := [column.name for column in sniffed.kept if column.percent]:
        table["percent"] = percent
    if times := {column.name: column.form for column in sniffed.kept if column.form}:
        table["times"] = times
    if len(sniffed.kept) < len(sniffed.columns):
        table["guards"] = {"new_column": "accept"}  # what is left out
    nulls = {"nulls": list(sniffed.nulls)} if sniffed.nulls != _DEFAULT_NULLS else {}
    return {"name": name, "kind": "files", "path": str(path.parent), **zone, **nulls, "tables": {name: table}}
