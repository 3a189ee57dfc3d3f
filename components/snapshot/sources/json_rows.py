"""Types the rows of one block of JSON lines."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.json

from gatehouse.components.snapshot.sources.base import Raw
from gatehouse.components.snapshot.sources.declared import check_columns, declare
from gatehouse.components.snapshot.sources.files import FileTable
from gatehouse.components.snapshot.spec import ColumnType
from gatehouse.errors import SourceError


@dataclass(frozen=True)
class JsonRows:
    """Reads blocks of one file. A key that a row lacks is null there; a column that a block lacks is null in it."""

    name: str
    file: str
    spec: FileTable

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block.

        Raises:
            SourceError: naming the line that is no JSON object, or the line, column and value that do not fit.
        """
        block = block.removeprefix(b"\xef\xbb\xbf")
        if not block.strip():
            return declare((), self.spec, name=self.name, place=lambda *_: "", time_zone="")
        table = self._parsed(block, lines_before)
        delivered = {field.name: str(field.type) for field in table.schema}
        check_columns(self.name, {**self.spec.columns, **delivered}, self.spec)
        for column in self.spec.columns:
            if column not in table.column_names:
                table = table.append_column(column, pa.nulls(table.num_rows))

        def place(_piece: pa.Table, _row: int, index: int) -> str:
            return f"{self.file}, line {lines_before() + self._line(block, index)}"

        raw = declare((table,), self.spec, name=self.name, place=place, time_zone="")
        return Raw(raw.table, raw.rejected, delivered)

    def _parsed(self, block: bytes, lines_before: Callable[[], int]) -> pa.Table:
        # Texts stay texts: Arrow would guess times, and read 1 as one in a column of texts otherwise.
        text = [column for column, kind in self.spec.columns.items() if kind in _TEXTS]
        try:
            return pa.json.read_json(
                pa.BufferReader(block),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pa.json.ParseOptions(explicit_schema=pa.schema([(name, pa.string()) for name in text])),
            )
        except pa.ArrowInvalid as error:
            raise SourceError(
                f"Table {self.name}: {self.file}{self._broken(block, lines_before)} cannot be read: {error}. "
                "Expected one JSON object a line, with values of one type in each column."
            ) from error

    def _broken(self, block: bytes, lines_before: Callable[[], int]) -> str:
        for number, line in enumerate(block.split(b"\n"), 1):
            try:
                fits = not line.strip() or isinstance(json.loads(line), dict)
            except ValueError:
                fits = False
            if not fits:
                return f", line {lines_before() + number},"
        return ""

    @staticmethod
    def _line(block: bytes, index: int) -> int:
        filled = [number for number, line in enumerate(block.split(b"\n"), 1) if line.strip()]
        return filled[index]


_TEXTS = (ColumnType.string, ColumnType.timestamp)
