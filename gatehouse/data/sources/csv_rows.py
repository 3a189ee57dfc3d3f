"""Types the rows of one block of CSV, and says line, column and value of what does not fit.

Arrow reads a block whose rows all fit. Of any other block, the columns with values that do not fit are read as texts,
and told apart a column at a time, so that such rows cost about as much as those that fit, however many there are.
"""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import line_end
from gatehouse.data.sources.csv_lines import lines_of, quoted, without
from gatehouse.data.sources.csv_rejects import Misfits, set_aside, shown_cells
from gatehouse.data.sources.csv_texts import read_texts
from gatehouse.data.sources.declared import NOT_SHOWN, check_columns, reason_of, schema_of, shown_names
from gatehouse.data.sources.files import FilesBase, FileTable
from gatehouse.data.sources.rejects import Read, Reject
from gatehouse.data.sources.times import FIRST_TIME, LAST_TIME, wanted
from gatehouse.errors import DeclarationError, SourceError

BOM = b"\xef\xbb\xbf"
_PARSED_AT_ONCE = 2**20
_DELIMITERS = {";": "';'", "\t": "a tab", "|": "'|'", ",": "','"}
_COLUMN = re.compile(r"^In CSV column #(\d+):")
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class CsvRows:
    """Reads blocks of one file.

    Attributes:
        name: The table's name, for messages.
        file: The file's name, for messages.
        spec: What is declared of it.
        nulls: Texts that stand for a missing value.
        time_zone: Zone of times that state none; empty refuses them.
        header: Names of the columns in the file, as `shown_names` gives them.
    """

    name: str
    file: str
    spec: FileTable
    nulls: tuple[str, ...]
    time_zone: str = ""
    header: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, name: str, file: str, spec: FileTable, source: FilesBase, beginning: bytes) -> "CsvRows":
        """Read the header in the first block.

        Raises:
            SourceError: if the columns are not those declared.
        """
        if not beginning.strip():
            raise SourceError(
                f"Table {name}: {file} is empty, expected a first line with the columns {', '.join(spec.columns)}. "
                "Find out why nothing was delivered."
            )
        if beginning.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise DeclarationError(
                f"Table {name}: {file} begins as UTF-16 does, expected UTF-8. Set source.tables.{name}.encoding to "
                "utf-16."
            )
        line = beginning[: header_end(beginning, spec.delimiter.encode())].removeprefix(BOM)
        cells = _cells(line, spec.delimiter)
        header = shown_names(cells, spec)
        repeated = dict.fromkeys(name for name, cell in zip(header, cells, strict=True) if cells.count(cell) > 1)
        if repeated:
            raise SourceError(
                f"Table {name}: {file} has columns of one name (repeated: {', '.join(repeated)}). Give each column "
                "another name in the first line."
            )
        if not set(header) & set(spec.columns):
            _require_delimiter(name, file, spec, line)
        check_columns(name, header, spec)
        return cls(name, file, spec, source.nulls, source.time_zone, header)

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block without the header.

        Args:
            block: Whole rows.
            lines_before: Counts the lines of the file before the block; asked only where a row does not fit.

        Raises:
            DeclarationError: naming line, column and value of the first row that does not fit, unless it may be set
                aside.
        """
        delivered = dict.fromkeys(self.header, "text")
        if not block.strip(b"\r\n"):
            return Raw(schema_of(self.spec.columns).empty_table(), columns=delivered)
        if b'"' in block:
            self._require_closed_quotes(block, lines_before)
        try:
            return Raw(self._typed(block), columns=delivered)
        except pa.ArrowInvalid as error:
            table, rejected = self._sifted(block, lines_before, error)
        if rejected is not None and self.spec.on_invalid == "fail":
            raise DeclarationError(f"Table {self.name}: {Reject(**rejected.slice(0, 1).to_pylist()[0])}.")
        return Raw(table, rejected, columns=delivered)

    @property
    def _delimiter(self) -> bytes:
        return self.spec.delimiter.encode()

    def _require_closed_quotes(self, block: bytes, lines_before: Callable[[], int]) -> None:
        """Refuse what parsers accept in silence: a quote that is never closed swallows the rows up to the next one."""
        value, opened = quoted(self._delimiter), _opened(self._delimiter)
        if not opened.search(value.sub(b"", block)):
            return
        at = 0
        while (found := opened.search(block, at)) and (closed := value.match(block, found.start())):
            at = closed.end()
        line = lines_before() + block.count(b"\n", 0, found.start() if found else at) + 1
        raise SourceError(
            f"Table {self.name}: {self.file}, line {line}: a quote opens a value and is not closed at its end. "
            'Expected quotes around a whole value, and "" for a quote inside it (RFC 4180). Correct the file, or have '
            "it written again: rows after it may be part of one value."
        )

    def _typed(self, block: bytes) -> pa.Table:
        """A block as Arrow reads it; ArrowInvalid where some row may not fit."""
        schema, types = schema_of(self.spec.columns), self._types(pa.string(), block)
        table = self._parsed(block, types, _PARSED_AT_ONCE)
        for index, column in enumerate(schema):
            if types[column.name] != column.type:
                texts = table[column.name].combine_chunks()
                read = self._read(column.name, texts)
                if read.fits is not None:
                    raise pa.ArrowInvalid(f"column {column.name}: some value does not fit")
                table = table.set_column(index, column, read.values)
            elif not _is_plain(table[column.name]):
                raise pa.ArrowInvalid(f"column {column.name}: a value may be out of range")
        return table

    def _types(self, read_later: pa.DataType, text: bytes) -> dict[str, pa.DataType]:
        """What Arrow reads each column of a text as; `read_later` where it reads less or more than we do."""
        hexadecimal = b"0x" in text or b"0X" in text
        return {
            column.name: read_later
            if (pa.types.is_timestamp(column.type) and (self.time_zone or column.name in self.spec.times))
            or (pa.types.is_integer(column.type) and hexadecimal)
            else column.type
            for column in schema_of(self.spec.columns)
        }

    def _read(self, column: str, cells: pa.Array) -> Read:
        """The values of a column's texts."""
        kind, form = self.spec.columns[column], self.spec.times.get(column, "")
        return read_texts(cells, kind, decimal=self.spec.decimal, zone=self.time_zone, form=form)

    def _parsed(self, text: bytes, types: dict[str, pa.DataType], at_once: int) -> pa.Table:
        """The columns of a text in given types."""
        return pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=self.header, use_threads=False, block_size=at_once),
            parse_options=pa.csv.ParseOptions(delimiter=self.spec.delimiter, newlines_in_values=b'"' in text),
            convert_options=pa.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                include_missing_columns=True,
                null_values=list(self.nulls),
                strings_can_be_null=True,
                decimal_point=self.spec.decimal,
            ),
        )

    def _sifted(
        self, block: bytes, lines_before: Callable[[], int], error: pa.ArrowInvalid
    ) -> tuple[pa.Table, pa.Table | None]:
        """The rows that fit, typed, and those that do not, in order; None where all fit. `error` is what Arrow said."""
        lines = lines_of(block, self._delimiter)
        whole = lines.widths == len(self.header)
        rows, others = np.flatnonzero(whole), np.flatnonzero(~whole)
        table, misfits = self._told_apart(without(block, lines, others), len(rows), error)
        misfits = [replace(each, rows=rows[each.rows]) for each in misfits]
        if len(others):
            found = pc.cast(pa.array(lines.widths[others]), pa.string())
            misfits.append(Misfits(others, "", f"expected {len(self.header)} columns", found))
        if not misfits:
            return table, None
        return table, set_aside(block, lines, misfits, self.file, lines_before(), hidden=bool(self.spec.sensitive))

    def _told_apart(self, text: bytes, rows: int, error: pa.ArrowInvalid) -> tuple[pa.Table, list[Misfits]]:
        """The rows of a text that fit, typed, and those that do not, each with its first column that does not.

        Args:
            text: Whole rows, each with as many cells as the header.
            rows: How many there are.
            error: What Arrow said of them.
        """
        schema = schema_of(self.spec.columns)
        if not rows:
            return schema.empty_table(), []
        cells = self._partly_typed(text, error)
        if cells.num_rows != rows:
            raise SourceError(
                f"Table {self.name}: {self.file} cannot be read: a block has {rows:,} rows by its line ends, and "
                f"{cells.num_rows:,} by its values. Have it written again with quotes around whole values."
            )
        values: list[pa.Array] = []
        misfits: list[Misfits] = []
        fits = np.ones(rows, bool)
        for column in schema.names:
            array = _single(cells[column])
            if not pa.types.is_binary(array.type):
                values.append(array)
                continue
            read = self._read(column, array)
            values.append(read.values)
            if read.fits is not None:
                mine = read.fits.to_numpy(zero_copy_only=False)
                misfits += self._misfits(column, array, read, np.flatnonzero(fits & ~mine))
                fits &= mine
        table = pa.Table.from_arrays(values, schema=schema)
        return (table.filter(pa.array(fits)) if misfits else table), misfits

    def _partly_typed(self, text: bytes, error: pa.ArrowInvalid) -> pa.Table:
        """The columns of a text: typed where all values of a column fit, else as bytes.

        An error of Arrow says in which column the first value is that does not fit.
        """
        types, at_once = self._types(pa.binary(), text), _PARSED_AT_ONCE
        while True:
            told = _COLUMN.search(str(error))
            column = self.header[int(told[1])] if told else ""
            if column in types:
                types[column] = pa.binary()
            try:
                table = self._parsed(text, types, at_once)
            except pa.ArrowInvalid as found:
                if str(found) == str(error) and at_once > len(text):
                    said = NOT_SHOWN if self.spec.sensitive else found
                    raise SourceError(f"Table {self.name}: {self.file} cannot be read: {said}.") from None
                if str(found) == str(error):  # A row may be longer than what is parsed at once.
                    at_once = len(text) + 1
                error = found
                continue
            doubtful = [name for name in types if not _is_plain(table[name])]
            if not doubtful:
                return table
            types |= dict.fromkeys(doubtful, pa.binary())

    def _misfits(self, column: str, cells: pa.Array, read: Read, rows: np.ndarray) -> Iterator[Misfits]:
        """Some misfits of a column, by reason."""
        notes = np.zeros(len(cells), int)
        for number, (indices, _) in enumerate(read.notes, 1):
            notes[indices.to_numpy()] = number
        texts = ["", *(note for _, note in read.notes)]
        for number in np.unique(notes[rows]).tolist():
            mine = rows[notes[rows] == number]
            found = pa.repeat(NOT_SHOWN, len(mine)) if self.spec.sensitive else shown_cells(cells.take(pa.array(mine)))
            yield Misfits(mine, column, reason_of(self._wanted(column), texts[number]), found)

    def _wanted(self, column: str) -> str:
        kind, form = self.spec.columns[column], self.spec.times.get(column, "")
        if kind is ColumnType.timestamp and form:
            return wanted(self.time_zone, form)
        if kind is ColumnType.timestamp and not self.time_zone:
            return "a time with its zone, e.g. 2013-01-01T10:00:00Z (or source.time_zone)"
        if kind is ColumnType.string:
            return f"text in {self.spec.encoding.upper()}" + (
                " (or encoding, e.g. cp1252)" if self._plain_encoding else ""
            )
        return str(kind)

    @property
    def _plain_encoding(self) -> bool:
        return self.spec.encoding == "utf-8"


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether no value can be one that Arrow reads where its text is none: a number too large, a year too early."""
    if pa.types.is_floating(column.type):
        return not pc.any(pc.is_inf(column), min_count=0).as_py()
    if pa.types.is_timestamp(column.type):
        span = pc.min_max(column.cast(pa.int64())).as_py()
        return span["min"] is None or (span["min"] >= FIRST_TIME and span["max"] <= LAST_TIME)
    return True


def _single(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


@cache
def _opened(delimiter: bytes) -> re.Pattern[bytes]:
    """A quote that opens a value."""
    return re.compile(rb"(?<![^" + re.escape(delimiter) + rb'\r\n])"')


def _require_delimiter(name: str, file: str, spec: FileTable, line: bytes) -> None:
    """Refuse a file whose header only another delimiter cuts into declared columns."""
    for other, said in _DELIMITERS.items():
        if other != spec.delimiter and (names := set(_cells(line, other)) & set(spec.columns)) and len(names) > 1:
            expected = _DELIMITERS.get(spec.delimiter, repr(spec.delimiter))
            raise DeclarationError(
                f"Table {name}: {file} is separated by {said}, expected {expected}. Set source.tables.{name}.delimiter "
                f"to {json.dumps(other)}."
            )


def header_end(beginning: bytes, delimiter: bytes = b",") -> int:
    """Where the rows begin: after a byte order mark, empty lines and the header."""
    text = beginning.removeprefix(BOM)
    empty = len(text) - len(text.lstrip(b"\r\n"))
    end = line_end(text[empty:], delimiter) or len(text) - empty
    return len(beginning) - len(text) + empty + end


def lines_in(pieces: Iterable[bytes]) -> int:
    """How many lines end in a text that comes in pieces."""
    count, last = 0, b""
    for piece in pieces:
        count += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
        count -= last == b"\r" and piece[:1] == b"\n"
        last = piece[-1:]
    return count


def _cells(line: bytes, delimiter: str) -> list[str]:
    """The cells of the first row that is not empty. Each byte is one character, so that nothing is lost."""
    rows = csv.reader(io.StringIO(line.decode("latin-1"), newline=""), delimiter=delimiter)
    return [_shown(cell.encode("latin-1")) for cell in next((row for row in rows if row), [])]


def _shown(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")
