"""Reads blocks of a CSV into typed rows, and names line, column and value of each row that does not fit.

Arrow splits a block into cells, and `declared.read_texts` casts a column at a time. docs/decisions/snapshot-parts.md
says why DuckDB does neither.
"""

import csv
import io
import re
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import first_row_end
from gatehouse.data.sources.declared import (
    HIDDEN,
    NOT_SHOWN,
    Reject,
    check_columns,
    read_texts,
    reason_of,
    rejected_table,
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
        line = beginning[: header_end(beginning, spec.delimiter.encode())]
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

    def read(self, block: bytes, lines_before: int) -> Raw:
        """The rows of a block without the header, after so many lines of the file.

        Raises MisfitError naming the first row that does not fit, unless the declaration sets such rows aside, and
        SourceError if a quote is not closed.
        """
        delivered = dict.fromkeys(self.header, "text")
        self._require_closed_quotes(block, lines_before)
        cells, uneven = self._parsed(block)
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
                misfits.setdefault(row, (column, reason, NOT_SHOWN if self.spec.sensitive else repr(cell)))
        table = pa.Table.from_arrays(values, schema=schema_of(self.spec.columns))
        if not misfits and not uneven:
            return Raw(table, columns=delivered)
        rows = _rows_in(block, self.spec.delimiter)
        even = [row for row in range(len(rows)) if row not in uneven]
        if len(even) != table.num_rows:
            raise SourceError(
                f"Table {self.name}: {self.file}: a block has {len(even):,} rows by its line ends, and "
                f"{table.num_rows:,} by its values. Write it again with quotes around whole values."
            )
        expected = f"expected {len(self.header)} columns"
        rejects = {even[row]: misfit for row, misfit in misfits.items()}
        rejects |= {row: ("", expected, str(width)) for row, width in uneven.items()}
        if misfits:
            table = table.filter(pa.array([row not in misfits for row in range(table.num_rows)]))
        return Raw(table, self._rejected(rejects, rows, lines_before), delivered)

    def _rejected(
        self, rejects: dict[int, tuple[str, str, str]], rows: list[tuple[int, bytes, int]], lines_before: int
    ) -> pa.Table | None:
        rejected = []
        for row in sorted(rejects):
            line, raw, _ = rows[row]
            reject = Reject(f"{self.file}, line {lines_before + line}", *rejects[row])
            if self.spec.on_invalid == "fail":
                raise MisfitError(f"Table {self.name}: {reject}.")
            rejected.append(reject._replace(raw=HIDDEN if self.spec.sensitive else _text(raw)))
        return rejected_table(rejected)

    def _require_closed_quotes(self, block: bytes, lines_before: int) -> None:
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
        line = lines_before + block.count(b"\n", 0, at) + 1
        raise SourceError(
            f"Table {self.name}: {self.file}, line {line}: a quote opens a value and is not closed at its end. "
            'Expected quotes around a whole value, and "" for a quote inside it (RFC 4180).'
        )

    def _parsed(self, text: bytes) -> tuple[pa.Table, dict[int, int]]:
        """The cells of the declared columns as bytes, null for a missing value; and the width of each other row."""
        try:
            return self._cells(text, _PARSED_AT_ONCE), {}
        except pa.ArrowInvalid:  # A row has another number of cells, or is longer than what is parsed at once.
            rows = _rows_in(text, self.spec.delimiter)
        even = [raw for _, raw, width in rows if width == len(self.header)]
        try:
            cells = self._cells(b"\n".join(even), max(_PARSED_AT_ONCE, 2 * max(map(len, even), default=0)))
        except pa.ArrowInvalid as error:
            words = NOT_SHOWN if self.spec.sensitive else error
            raise SourceError(f"Table {self.name}: {self.file} cannot be read: {words}.") from None
        return cells, {row: width for row, (_, _, width) in enumerate(rows) if width != len(self.header)}

    def _cells(self, text: bytes, at_once: int) -> pa.Table:
        types = dict.fromkeys(self.spec.columns, pa.binary())
        if not text.strip(b"\r\n"):
            return pa.table({column: pa.array([], kind) for column, kind in types.items()})
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


def _rows_in(block: bytes, delimiter: str) -> list[tuple[int, bytes, int]]:
    """The rows of a block without empty lines: the line that each ends on, its bytes, and its number of cells."""
    pieces = block.splitlines(keepends=b'"' in block)
    if b'"' not in block:
        cell_end = delimiter.encode()
        return [(number, line, line.count(cell_end) + 1) for number, line in enumerate(pieces, 1) if line]
    rows, before = [], 0
    reader = csv.reader((line.decode("latin-1") for line in pieces), delimiter=delimiter)
    for cells in reader:
        if cells:
            raw = b"".join(pieces[before : reader.line_num]).rstrip(b"\r\n")
            rows.append((reader.line_num, raw, len(cells)))
        before = reader.line_num
    return rows


def header_end(beginning: bytes, delimiter: bytes = b",") -> int:
    """Where the rows begin: after empty lines and the header."""
    text = beginning.lstrip(b"\r\n")
    return len(beginning) - len(text) + (first_row_end(text, delimiter) or len(text))


def lines_in(text: bytes) -> int:
    """How many lines end in a text."""
    return text.count(b"\n") + text.count(b"\r") - text.count(b"\r\n")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _texts(cells: pa.Array) -> list[str]:
    try:
        texts: list[str] = pc.cast(cells, pa.string()).to_pylist()
    except pa.ArrowInvalid:
        texts = [_text(cell) for cell in cells.to_pylist()]
    return texts
