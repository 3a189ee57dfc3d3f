"""Reads blocks of a CSV into typed rows, and names line, column and value of each row that does not fit.

Arrow splits a block into cells, and `casts.read_texts` casts a column at a time. DuckDB's reader is no replacement: it
rounds 1.5 to a whole number, cuts nanoseconds and reads 1e400 as infinity without a reject, and its `store_rejects`
takes five times as long when half of the rows do not fit.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import BOM, line_end
from gatehouse.data.sources.declared import (
    HIDDEN,
    NOT_SHOWN,
    SCHEMA,
    Reject,
    check_columns,
    read_texts,
    reason_of,
    schema_of,
    shown_names,
)
from gatehouse.data.sources.files import FilesBase, FileTable
from gatehouse.errors import MisfitError, SourceError

_PARSED_AT_ONCE = 2**20
csv.field_size_limit(2**31 - 1)


@dataclass(frozen=True)
class CsvRows:
    """Reads the blocks of one file. `header` has the names of its columns, as `shown_names` gives them."""

    name: str
    file: str
    spec: FileTable
    nulls: tuple[str, ...]
    time_zone: str = ""
    header: list[str] = field(default_factory=list)

    @classmethod
    def open(cls, name: str, file: str, spec: FileTable, source: FilesBase, beginning: bytes) -> "CsvRows":
        """Read the header in the first block. Raises SourceError if the columns are not those declared."""
        if not beginning.strip():
            raise SourceError(
                f"Table {name}: {file} is empty, expected a first line with the columns {', '.join(spec.columns)}."
            )
        line = beginning[: header_end(beginning, spec.delimiter.encode())].removeprefix(BOM)
        # The first row that is not empty. Each byte is one character, so that nothing is lost.
        rows = csv.reader(io.StringIO(line.decode("latin-1"), newline=""), delimiter=spec.delimiter)
        cells = [_text(cell.encode("latin-1")) for cell in next((row for row in rows if row), [])]
        header = shown_names(cells, spec)
        repeated = dict.fromkeys(name for name, cell in zip(header, cells, strict=True) if cells.count(cell) > 1)
        if repeated:
            raise SourceError(
                f"Table {name}: {file} has columns of one name (repeated: {', '.join(repeated)}). Rename them."
            )
        check_columns(name, header, spec)
        return cls(name, file, spec, source.nulls, source.time_zone, header)

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block without the header. `lines_before` is called only if a row does not fit.

        Raises MisfitError naming the first row that does not fit, unless the declaration sets such rows aside, and
        SourceError if a quote is not closed.
        """
        delivered, schema = dict.fromkeys(self.header, "text"), schema_of(self.spec.columns)
        if not block.strip(b"\r\n"):
            return Raw(schema.empty_table(), columns=delivered)
        self._require_closed_quotes(block, lines_before)
        rows = _Rows([], [], [])
        even: list[int] = []
        try:
            cells = self._parsed(block, _PARSED_AT_ONCE)
        except pa.ArrowInvalid:  # A row has another number of cells, or is longer than what is parsed at once.
            rows = _rows_in(block, self.spec.delimiter)
            even = [row for row, width in enumerate(rows.widths) if width == len(self.header)]
            cells = self._reparsed([rows.raw[row] for row in even])
        misfits: dict[int, tuple[str, str, str]] = {}
        values = []
        for column, kind in self.spec.columns.items():
            texts = cells[column].combine_chunks()
            form, decimal, percent = self.spec.times.get(column, ""), self.spec.decimal, column in self.spec.percent
            read = read_texts(texts, kind, decimal=decimal, percent=percent, zone=self.time_zone, form=form)
            values.append(read.values)
            if read.fits is None:
                continue
            reason = reason_of(kind, self.time_zone, form, decimal if kind is ColumnType.double else "", percent)
            if kind is ColumnType.string and self.spec.encoding == "utf-8":
                reason = "expected text in UTF-8 (or state encoding, e.g. cp1252)"
            odd = pc.indices_nonzero(pc.invert(read.fits))
            for row, cell in zip(odd.to_pylist(), _texts(texts.take(odd)), strict=True):
                if row not in misfits:
                    misfits[row] = (column, reason, NOT_SHOWN if self.spec.sensitive else repr(cell))
        table = pa.Table.from_arrays(values, schema=schema)
        if not misfits and len(even) == len(rows.raw):
            return Raw(table, columns=delivered)
        if not rows.raw:
            rows = _rows_in(block, self.spec.delimiter)
            even = list(range(len(rows.raw)))
        if len(even) != table.num_rows:
            raise SourceError(
                f"Table {self.name}: {self.file}: a block has {len(even):,} rows by its line ends, and "
                f"{table.num_rows:,} by its values. Write it again with quotes around whole values."
            )
        if misfits:
            table = table.filter(pa.array([row not in misfits for row in range(table.num_rows)]))
        rejects = {even[row]: misfit for row, misfit in misfits.items()}
        if len(even) < len(rows.raw):
            uneven = f"expected {len(self.header)} columns"
            rejects |= {
                row: ("", uneven, str(width)) for row, width in enumerate(rows.widths) if width != len(self.header)
            }
        return Raw(table, self._rejected(rejects, rows, lines_before()), delivered)

    def _rejected(self, rejects: dict[int, tuple[str, str, str]], rows: "_Rows", lines_before: int) -> pa.Table:
        order = sorted(rejects)
        numbers = pc.cast(pa.array([lines_before + rows.lines[row] for row in order]), pa.string())
        places = pc.binary_join_element_wise(f"{self.file}, line ", numbers, "")
        if self.spec.on_invalid == "fail":
            raise MisfitError(f"Table {self.name}: {Reject(places[0].as_py(), *rejects[order[0]])}.")
        columns = [pa.array(column, pa.string()) for column in zip(*(rejects[row] for row in order), strict=True)]
        raw = [HIDDEN] * len(order)
        if not self.spec.sensitive:
            raw = _texts(pa.array([rows.raw[row] for row in order], pa.binary()))
        return pa.Table.from_arrays([places, *columns, pa.array(raw, pa.string())], schema=SCHEMA)

    def _require_closed_quotes(self, block: bytes, lines_before: Callable[[], int]) -> None:
        """Refuse what parsers accept in silence: a quote that is never closed swallows the rows up to the next one."""
        if b'"' not in block:
            return
        edge = re.escape(self.spec.delimiter.encode()) + rb"\r\n"
        opening = re.compile(rb"(?<![^" + edge + rb'])"')
        value = re.compile(opening.pattern + rb'[^"]*(?:""[^"]*)*"(?=[' + edge + rb"]|\Z)")
        if not opening.search(value.sub(b"", block)):
            return
        at = 0
        while (quote := opening.search(block, at)) and (closed := value.match(block, quote.start())):
            at = closed.end()
        at = quote.start() if quote else at
        line = lines_before() + block.count(b"\n", 0, at) + 1
        raise SourceError(
            f"Table {self.name}: {self.file}, line {line}: a quote opens a value and is not closed at its end. "
            'Expected quotes around a whole value, and "" for a quote inside it (RFC 4180).'
        )

    def _reparsed(self, rows: list[bytes]) -> pa.Table:
        """The cells of rows that have as many as the header."""
        if not rows:
            return pa.table({column: pa.array([], pa.binary()) for column in self.spec.columns})
        text = b"\n".join(rows)
        for at_once in (_PARSED_AT_ONCE, len(text) + 1):
            try:
                return self._parsed(text, at_once)
            except pa.ArrowInvalid as error:
                words = NOT_SHOWN if self.spec.sensitive else error
        raise SourceError(f"Table {self.name}: {self.file} cannot be read: {words}.")

    def _parsed(self, text: bytes, at_once: int) -> pa.Table:
        """The cells of the declared columns as bytes; null for a missing value."""
        types = dict.fromkeys(self.spec.columns, pa.binary())
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
            ),
        )


class _Rows(NamedTuple):
    """Rows without empty lines: the line that each ends on, its bytes, and its number of cells."""

    lines: list[int]
    raw: list[bytes]
    widths: list[int]


def _rows_in(block: bytes, delimiter: str) -> _Rows:
    pieces = block.splitlines(keepends=b'"' in block)
    if b'"' not in block:
        raw = [line for line in pieces if line]
        cell_end = delimiter.encode()
        widths = [line.count(cell_end) + 1 for line in raw]
        return _Rows([number for number, line in enumerate(pieces, 1) if line], raw, widths)
    rows, before = _Rows([], [], []), 0
    reader = csv.reader((line.decode("latin-1") for line in pieces), delimiter=delimiter)
    for cells in reader:
        if cells:
            rows.lines.append(reader.line_num)
            rows.raw.append(b"".join(pieces[before : reader.line_num]).rstrip(b"\r\n"))
            rows.widths.append(len(cells))
        before = reader.line_num
    return rows


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


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _texts(cells: pa.Array) -> list[str]:
    try:
        texts: list[str] = pc.cast(cells, pa.string()).to_pylist()
    except pa.ArrowInvalid:
        texts = [_text(cell) for cell in cells.to_pylist()]
    return texts
