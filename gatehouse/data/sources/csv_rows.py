"""Reads blocks of a CSV into typed rows, and names line, column and value of each row that does not fit.

Arrow splits a block into cells, and `declared.read_texts` casts a column at a time. docs/decisions/snapshot-parts.md
says why DuckDB does neither.
"""

import csv
import io
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.csv

from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import header_end
from gatehouse.data.sources.declared import (
    HIDDEN,
    NOT_SHOWN,
    Reject,
    check_columns,
    first_misfits,
    read_texts,
    reason_of,
    rejected_table,
    schema_of,
    shown_misfit,
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

    def read(self, lines_before: int, block: bytes) -> Raw:
        """The rows of a block without the header, after so many lines of the file.

        Raises MisfitError naming the first row that does not fit, unless the declaration sets such rows aside.
        """
        delivered = dict.fromkeys(self.header, "text")
        cells, all_even = self._parsed(block)
        columns = {}
        for column, kind in self.spec.columns.items():
            columns[column] = read_texts(
                cells[column].combine_chunks(),
                kind,
                decimal=self.spec.decimal,
                percent=column in self.spec.percent,
                zone=self.time_zone,
                form=self.spec.times.get(column, ""),
            )
        misfits = first_misfits(columns)
        table = pa.Table.from_arrays([read.values for read in columns.values()], schema=schema_of(self.spec.columns))
        if all_even and not misfits:
            return Raw(table, columns=delivered)
        rows = _rows_in(block, self.spec.delimiter)
        if table.num_rows != sum(width == len(self.header) for _, _, width in rows):
            raise SourceError(
                f"Table {self.name}: {self.file}: a block has another number of rows by its line ends than the "
                f"{table.num_rows:,} by its values. Write it again with quotes around whole values."
            )
        rejects, even = [], -1
        for line, raw, width in rows:
            place = f"{self.file}, line {lines_before + line}"
            if width != len(self.header):
                reject = Reject(place, "", f"expected {len(self.header)} columns", str(width))
            elif (even := even + 1) in misfits:
                column = misfits[even]
                value = shown_misfit(_text(cells[column][even].as_py()), self.spec.sensitive)
                reject = Reject(place, column, self._reason(column), value)
            else:
                continue
            if self.spec.on_invalid == "fail":
                raise MisfitError(f"Table {self.name}: {reject}.")
            rejects.append(reject._replace(raw=HIDDEN if self.spec.sensitive else _text(raw)))
        if misfits:
            table = table.filter(pa.array([row not in misfits for row in range(table.num_rows)]))
        return Raw(table, rejected_table(rejects), delivered)

    def _reason(self, column: str) -> str:
        kind = self.spec.columns[column]
        if kind is ColumnType.string and self.spec.encoding == "utf-8":
            return "expected text in UTF-8 (or state encoding, e.g. cp1252)"
        decimal = self.spec.decimal if kind is ColumnType.double else ""
        return reason_of(kind, self.time_zone, self.spec.times.get(column, ""), decimal, column in self.spec.percent)

    def _parsed(self, text: bytes) -> tuple[pa.Table, bool]:
        """The cells of the rows with as many as the header, and whether these are all rows."""
        try:
            return self._cells(text, _PARSED_AT_ONCE), True
        except pa.ArrowInvalid:  # A row has another number of cells, or is longer than what is parsed at once.
            rows = _rows_in(text, self.spec.delimiter)
        even = [raw for _, raw, width in rows if width == len(self.header)]
        try:
            return self._cells(b"\n".join(even), max(_PARSED_AT_ONCE, 2 * len(text))), len(even) == len(rows)
        except pa.ArrowInvalid as error:
            words = NOT_SHOWN if self.spec.sensitive else error
            raise SourceError(f"Table {self.name}: {self.file} cannot be read: {words}.") from None

    def _cells(self, text: bytes, at_once: int) -> pa.Table:
        """The cells of the declared columns as bytes, null for a missing value."""
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
    pieces = block.splitlines(keepends=True)
    rows, before = [], 0
    reader = csv.reader((line.decode("latin-1") for line in pieces), delimiter=delimiter)
    for cells in reader:
        if cells:
            raw = b"".join(pieces[before : reader.line_num]).rstrip(b"\r\n")
            rows.append((reader.line_num, raw, len(cells)))
        before = reader.line_num
    return rows


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
