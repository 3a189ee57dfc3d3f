"""Types the rows of one block of CSV, and says line, column and value of what does not fit."""

import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gatehouse.components.snapshot.sources.base import Raw
from gatehouse.components.snapshot.sources.blocks import line_end
from gatehouse.components.snapshot.sources.declared import check_columns, schema_of, times_of_text
from gatehouse.components.snapshot.sources.files import FilesBase, FileTable
from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError

BOM = b"\xef\xbb\xbf"
HIDDEN = "***"
_PARSED_AT_ONCE = 2**20
# Texts that Arrow reads for certain; all others are tried one by one.
_CERTAIN = {
    ColumnType.int64: r"^-?(0|[1-9]\d{0,17})$",
    ColumnType.double: r"^-?(0|[1-9]\d{0,14})(\.\d{1,15})?$",
    ColumnType.bool: r"^(true|false)$",
    ColumnType.timestamp: r"^\d{4}-(0[1-9]|1[0-2])-([01][1-9]|10|20)T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?Z$",
}
NEWLINE = b"\n"
_OPENED = re.compile(rb'(?<![^,\r\n])"')
_INFINITY = re.compile(r"inf", re.IGNORECASE)
_QUOTED = re.compile(_OPENED.pattern + rb'[^"]*(?:""[^"]*)*"(?=[,\r\n]|\Z)')
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class CsvRows:
    """Reads blocks of one file.

    Attributes:
        name: The table's name, for messages.
        file: The file's name, for messages.
        time_zone: Zone of times that state none; empty refuses them.
        header: Names of the columns in the file.
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
        first = next((row for _, row in _rows_of(beginning[: header_end(beginning)]) if row), [])
        header = [_shown(cell) for cell in first]
        repeated = sorted({column for column in header if header.count(column) > 1})
        if repeated:
            raise SourceError(
                f"Table {name}: {file} has columns of one name (repeated: {', '.join(repeated)}). Rename them there."
            )
        check_columns(name, header, spec)
        return cls(name, file, spec, source.nulls, source.time_zone, header)

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block without the header.

        Args:
            block: Whole rows.
            lines_before: Counts the lines of the file before the block; asked only where a row does not fit.

        Raises:
            SourceError: naming line, column and value of the first row that does not fit, unless it may be rejected.
        """
        delivered = dict.fromkeys(self.header, "text")
        if not block.strip(b"\r\n"):
            return Raw(schema_of(self.spec.columns).empty_table(), columns=delivered)
        if b'"' in block:
            self._require_closed_quotes(block, lines_before)
        try:
            return Raw(self._typed(block), columns=delivered)
        except pa.ArrowInvalid as error:
            if self.spec.on_invalid == "fail":
                raise SourceError(self._explain(block, str(error), lines_before())) from error
        fit, rejected = self._sifted(block, lines_before())
        return Raw(fit, rejected, columns=delivered)

    def _require_closed_quotes(self, block: bytes, lines_before: Callable[[], int]) -> None:
        """Refuse what parsers accept in silence: a quote that is never closed swallows the rows up to the next one."""
        if not _OPENED.search(_QUOTED.sub(b"", block)):
            return
        at = 0
        while closed := _QUOTED.match(block, at := _opened(block, at)):
            at = closed.end()
        raise SourceError(
            f"Table {self.name}: {self.file}, line {lines_before() + block.count(NEWLINE, 0, at) + 1}: a quote opens a "
            'value and is not closed at its end. Expected quotes around a whole value, and "" for a quote inside it '
            "(RFC 4180). Correct the file, or have it written again: rows after it may be part of one value."
        )

    def _typed(self, block: bytes) -> pa.Table:
        quoted = b'"' in block
        try:
            return self._parsed(block, _PARSED_AT_ONCE, quoted)
        except pa.ArrowInvalid as error:
            if "straddl" not in str(error) or len(block) <= _PARSED_AT_ONCE:
                raise
            return self._parsed(block, len(block) + 1, quoted)

    def _parsed(self, block: bytes, at_once: int, quoted: bool) -> pa.Table:
        table = self._columns(block, self.header, self.spec.columns, at_once, quoted)
        if overflown := next(self._overflown(block, table), None):
            raise pa.ArrowInvalid(overflown)
        return table

    def _columns(
        self, text: bytes, header: list[str], columns: Mapping[str, ColumnType], at_once: int, quoted: bool
    ) -> pa.Table:
        """A text as Arrow reads it, typed; ArrowInvalid where it does not fit."""
        schema = schema_of(columns)
        located = [name for name, kind in columns.items() if kind is ColumnType.timestamp and self.time_zone]
        read_as = {field.name: pa.string() if field.name in located else field.type for field in schema}
        table = pa.csv.read_csv(
            pa.BufferReader(text),
            read_options=pa.csv.ReadOptions(column_names=header, use_threads=False, block_size=at_once),
            parse_options=pa.csv.ParseOptions(newlines_in_values=quoted),
            convert_options=pa.csv.ConvertOptions(
                column_types=read_as,
                include_columns=schema.names,
                include_missing_columns=True,
                null_values=list(self.nulls),
                strings_can_be_null=True,
            ),
        )
        for name in located:
            times = times_of_text(table[name], self.time_zone)
            table = table.set_column(table.column_names.index(name), schema.field(name), times)
        return table

    def _overflown(self, block: bytes, table: pa.Table) -> Iterator[str]:
        """Columns with a number that no double holds, which Arrow reads as an infinity."""
        for name, kind in self.spec.columns.items():
            if kind is ColumnType.double and pc.any(pc.is_inf(table[name])).as_py():
                position = self.header.index(name)
                cells = {row[position] for _, row in _rows_of(block) if row}
                if any(not self._is_read(cell, kind) for cell in cells):
                    yield f"column {name}: a number is out of range"

    def _explain(self, block: bytes, message: str, before: int) -> str:
        """The first row that does not fit, else Arrow's message."""
        for line, row in _rows_of(block):
            if row and (problem := next(self._problems([row]), None)):
                return f"Table {self.name}: {self.file}, line {before + line}, {problem[1]}."
        return f"Table {self.name}: {self.file} cannot be read: {message}."

    def _sifted(self, block: bytes, before: int) -> tuple[pa.Table, pa.Table]:
        """The rows that fit, typed, and those that do not, with line, reason and raw text."""
        numbered = [(line, row) for line, row in _rows_of(block) if row]
        reasons: dict[int, str] = {}
        for index, reason in self._problems([row for _, row in numbered]):
            reasons.setdefault(index, f"line {before + numbered[index][0]}, {reason}")
        text = io.StringIO()
        # A carriage return alone would not be quoted otherwise.
        csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(
            row for index, (_, row) in enumerate(numbered) if index not in reasons
        )
        kept = text.getvalue().encode("latin-1")
        typed = self._typed(kept) if kept.strip() else schema_of(self.spec.columns).empty_table()
        raw = [self._raw(numbered[index][1]) for index in sorted(reasons)]
        columns = {
            "row": pa.array(sorted(reasons), pa.int64()),
            "reason": pa.array([reasons[index] for index in sorted(reasons)], pa.string()),
            "raw": pa.array(raw, pa.string()),
        }
        return typed, pa.table(columns)

    def _raw(self, row: list[str]) -> str:
        """A row as CSV, without what is sensitive. A row of another width does not tell which cells those are."""
        hidden = self.spec.sensitive
        if hidden and len(row) != len(self.header):
            return HIDDEN
        cells = [HIDDEN if self.header[index] in hidden else cell for index, cell in enumerate(row)] if hidden else row
        text = io.StringIO()
        csv.writer(text, lineterminator="").writerow(cells)
        return _shown(text.getvalue())

    def _problems(self, rows: list[list[str]]) -> Iterator[tuple[int, str]]:
        """Index and reason of the rows that do not fit, once a column."""
        width = len(self.header)
        whole = []
        for index, row in enumerate(rows):
            if len(row) == width:
                whole.append(index)
            else:
                yield index, f"expected {width} columns, found {len(row)}"
        for column, kind in self.spec.columns.items():
            if column in self.header:
                position = self.header.index(column)
                for at, reason in self._misfits(column, kind, [rows[index][position] for index in whole]):
                    yield whole[at], reason

    def _misfits(self, column: str, kind: ColumnType, cells: list[str]) -> Iterator[tuple[int, str]]:
        if kind is ColumnType.string:
            doubtful = [index for index, cell in enumerate(cells) if not cell.isascii()]
        else:
            certain = pc.match_substring_regex(pa.array(cells, pa.string()), _CERTAIN[kind])
            doubtful = pc.indices_nonzero(pc.invert(certain)).to_pylist()
        known: dict[str, bool] = {}
        for index in doubtful:
            value = cells[index]
            if value not in known:
                known[value] = self._is_read(value, kind)
            if not known[value]:
                found = "a value that is not shown" if column in self.spec.sensitive else repr(_shown(value))
                yield index, f"column {column}: expected {self._wanted(kind)} or a null, found {found}"

    def _wanted(self, kind: ColumnType) -> str:
        if kind is ColumnType.timestamp and not self.time_zone:
            return "a time with its zone, e.g. 2013-01-01T10:00:00Z (or source.time_zone),"
        return "text in UTF-8" if kind is ColumnType.string else str(kind)

    def _is_read(self, value: str, kind: ColumnType) -> bool:
        quoted = value.replace('"', '""')
        cell = f'"{quoted}"\n'.encode("latin-1")
        try:
            read = self._columns(cell, ["cell"], {"cell": kind}, len(cell) + 1, quoted=True)["cell"][0].as_py()
        except (pa.ArrowInvalid, ValueError):
            return False
        return not isinstance(read, float) or not math.isinf(read) or bool(_INFINITY.search(value))


def _opened(block: bytes, start: int) -> int:
    """Where the next quote opens a value."""
    found = _OPENED.search(block, start)
    assert found is not None  # asked only where some quote is not closed
    return found.start()


def header_end(beginning: bytes) -> int:
    """Where the rows begin: after a byte order mark, empty lines and the header."""
    text = beginning.removeprefix(BOM)
    empty = len(text) - len(text.lstrip(b"\r\n"))
    end = line_end(text[empty:]) or len(text) - empty
    return len(beginning) - len(text) + empty + end


def lines_in(pieces: Iterable[bytes]) -> int:
    """How many lines end in a text that comes in pieces."""
    count, last = 0, b""
    for piece in pieces:
        count += piece.count(b"\n") + piece.count(b"\r") - piece.count(b"\r\n")
        count -= last == b"\r" and piece[:1] == b"\n"
        last = piece[-1:]
    return count


def _rows_of(data: bytes) -> Iterator[tuple[int, list[str]]]:
    """Rows of a CSV with the line that each ends on, from 1. Each byte is one character, so that nothing is lost."""
    reader = csv.reader(io.StringIO(data.removeprefix(BOM).decode("latin-1"), newline=""))
    for row in reader:
        yield reader.line_num, row


def _shown(cell: str) -> str:
    return cell.encode("latin-1").decode("utf-8", "backslashreplace")
