"""Reads a CSV that nobody declared by the functions that read it into a snapshot, so that both count the same rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from gatehouse.data.snapshot.spec import ColumnType, Guards
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.blocks import blocks
from gatehouse.data.sources.csv_rows import CsvRows, header_end, lines_in
from gatehouse.data.sources.file_reader import LONGEST_ROW
from gatehouse.data.sources.files import FileTable, FolderSource

_ZONE = "UTC"


@dataclass(frozen=True)
class UndeclaredRows:
    """The rows of a file.

    Attributes:
        plain: The file, not packed and in UTF-8.
        name: What it is called in messages.
        delimiter: Between its cells.
        decimal: Of its numbers.
        nulls: Texts that stand for a missing value.
    """

    plain: Path
    name: str
    delimiter: str
    decimal: str = "."
    nulls: Sequence[str] = ("",)

    def read(self, columns: Mapping[str, ColumnType], times: Mapping[str, str] | None = None) -> Iterator[Raw]:
        """Some columns of the file, block by block; rows that do not fit are set aside.

        Args:
            columns: Their types.
            times: How they write times, as `times` of a table has it.

        Raises:
            SourceError: if the file cannot be divided into rows.
        """
        table = self.name.split(".")[0]
        spec = FileTable(
            member=f"{table}.csv",
            delimiter=self.delimiter,
            decimal="," if self.decimal == "," else ".",
            columns=dict(columns),
            times=dict(times or {}),
            on_invalid="reject",
            guards=Guards(new_column="accept"),
        )
        source = FolderSource(
            name="undeclared", path=".", time_zone=_ZONE, nulls=tuple(self.nulls), tables={table: spec}
        )
        with open(self.plain, "rb") as stream:
            windows = iter(lambda: stream.read(source.block_bytes), b"")
            place, cells = f"Table {table}: {self.name}", self.delimiter.encode()
            rows, lines = None, 0
            for block in blocks(windows, quotes=True, longest=LONGEST_ROW, name=place, delimiter=cells):
                data = b"".join(block.pieces)
                begin = 0 if rows else header_end(data, cells)
                rows = rows or CsvRows.open(table, self.name, spec, source, data)
                yield rows.read(data[begin:], partial(int, lines + lines_in((data[:begin],))))
                lines += lines_in((data,))
