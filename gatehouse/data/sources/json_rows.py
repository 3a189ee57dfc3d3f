"""Types the rows of one block of JSON lines."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from gatehouse.data.messages.values import DoesNotFit, parse_json
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.snapshot.time_formats import EPOCHS
from gatehouse.data.sources.base import Raw
from gatehouse.data.sources.declared import (
    HIDDEN,
    TYPES,
    Place,
    check_columns,
    declare,
    expected,
    misfit_row,
    reason_of,
    shown_misfit,
)
from gatehouse.data.sources.files import FileTable
from gatehouse.data.sources.rejects import Reject, rejected_table
from gatehouse.errors import DeclarationError

_TEXTS = (ColumnType.string, ColumnType.timestamp)
_EXACT = 2**53
"""Below it every whole number is a double of its own."""


@dataclass(frozen=True)
class JsonRows:
    """Reads blocks of one file. A key that a row lacks is null there; a column that a block lacks is null in it.

    Arrow reads a block whose values are of one type in each column. Any other block is read row by row.
    """

    name: str
    file: str
    spec: FileTable
    time_zone: str = ""

    def read(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block.

        Raises:
            DeclarationError: naming the line that is no JSON object, or the line, column and value that do not fit,
                unless it may be rejected.
        """
        block = block.removeprefix(b"\xef\xbb\xbf")
        if not block.strip():
            return declare((), self.spec, name=self.name, place=lambda *_: "", time_zone=self.time_zone)
        table = self._parsed(block)
        if table is None:
            return self._sifted(block, lines_before)
        delivered = {
            field.name: _kind(field.type)
            for field in table.schema
            if table[field.name].null_count < table.num_rows or _has_key(block, field.name)
        }
        self._check(delivered)

        place = self._places(lines_before, lambda: [number for number, _ in _lines(block)])
        raw = declare((table,), self.spec, name=self.name, place=place, time_zone=self.time_zone)
        return Raw(raw.table, raw.rejected, delivered)

    def _places(self, lines_before: Callable[[], int], numbers: Callable[[], list[int]]) -> Place:
        """Names rows by their lines, which are counted once, and only where a row does not fit."""

        @cache
        def lines() -> tuple[int, list[int]]:
            return lines_before(), numbers()

        def place(_piece: pa.Table, _row: int, index: int) -> str:
            before, found = lines()
            return f"{self.file}, line {before + found[index]}"

        return place

    def _check(self, delivered: dict[str, str]) -> None:
        """Hold what is there against the declaration; what is missing shows over all blocks only."""
        check_columns(self.name, {**self.spec.columns, **delivered}, self.spec)

    def _parsed(self, block: bytes) -> pa.Table | None:
        """The block as Arrow reads it; None where it cannot, or would round what it reads."""
        # Texts stay texts: Arrow would guess times, and read 1 as one in a column of texts otherwise. A whole number
        # beside one with a fraction would become a double.
        given = {name: pa.string() for name in self._texts}
        given |= {name: TYPES[kind] for name, kind in self.spec.columns.items() if kind is ColumnType.int64}
        try:
            table = pa.json.read_json(
                pa.BufferReader(block),
                read_options=pa.json.ReadOptions(use_threads=False, block_size=len(block) + 1),
                parse_options=pa.json.ParseOptions(explicit_schema=pa.schema(list(given.items()))),
            )
        except pa.ArrowInvalid:
            return None
        doubles = [field.name for field in table.schema if pa.types.is_floating(field.type)]
        declared = [name for name in doubles if name in self.spec.columns]
        if any(not _is_number(table.schema.field(name).type) for name in self._numbers if name in table.column_names):
            return None
        rounded = any((pc.max(pc.abs(table[name])).as_py() or 0) >= _EXACT for name in declared)
        return None if rounded else table

    @property
    def _numbers(self) -> list[str]:
        """Columns of times that are numbers since 1970."""
        return [name for name, form in self.spec.times.items() if form in EPOCHS]

    @property
    def _texts(self) -> list[str]:
        """Columns whose values are texts."""
        return [name for name, kind in self.spec.columns.items() if kind in _TEXTS and name not in self._numbers]

    def _sifted(self, block: bytes, lines_before: Callable[[], int]) -> Raw:
        """The rows of a block one by one: those that fit, exactly as they are, and those that do not."""
        fit: list[dict[str, Any]] = []
        numbers: list[int] = []
        rejects: list[tuple[int, Reject]] = []
        delivered: dict[str, str] = {}
        before = lines_before()
        for number, line in _lines(block):
            row: dict[str, Any] = {}
            try:
                row = parse_json(line)
                fit.append(self._exact(row))
                numbers.append(number)
                delivered |= {key: _kind_of(value) for key, value in row.items() if value is not None}
            except DoesNotFit as misfit:
                told = Reject(f"{self.file}, line {before + number}", misfit.column, misfit.reason, misfit.found)
                if self.spec.on_invalid == "fail":
                    raise DeclarationError(
                        f"Table {self.name}: {told}. Correct the row, or declare on_invalid: reject to set such rows "
                        "aside."
                    ) from None
                rejects.append((number, told._replace(raw=self._raw(line, row))))
            delivered = dict.fromkeys(row, "null") | delivered
        self._check(delivered)
        types = {name: pa.string() if kind in _TEXTS else TYPES[kind] for name, kind in self.spec.columns.items()}
        table = pa.Table.from_pylist(fit, pa.schema(list(types.items())))
        place = self._places(lambda: before, lambda: numbers)
        raw = declare((table,), self.spec, name=self.name, place=place, time_zone=self.time_zone)
        more = [Reject(**row) for row in raw.rejected.to_pylist()] if raw.rejected is not None else []
        rejects += [(int(reject.place.rpartition(" ")[2]) - before, reject) for reject in more]
        return Raw(raw.table, rejected_table(reject for _, reject in sorted(rejects)), delivered)

    def _exact(self, row: dict[str, Any]) -> dict[str, Any]:
        """The declared columns of a row; DoesNotFit names the first value that is not of the declared type."""
        found = {}
        for column, kind in self.spec.columns.items():
            value, form = row.get(column), self.spec.times.get(column, "")
            try:
                found[column] = None if value is None else _converted(value, kind, form in EPOCHS)
            except (ValueError, OverflowError):
                reason = reason_of(expected(kind, self.time_zone, form), "")
                raise DoesNotFit(reason, column, shown_misfit(value, self.spec.sensitive)) from None
        return found

    def _raw(self, line: bytes, row: dict[str, Any]) -> str:
        """A row that does not fit, for people."""
        if row:
            return misfit_row(row, self.spec.sensitive)
        return HIDDEN if self.spec.sensitive else line.decode("utf-8", "backslashreplace")


def _converted(value: Any, kind: ColumnType, since_1970: bool) -> Any:
    """A value of JSON as the declared type; ValueError or OverflowError where it is not one exactly."""
    if since_1970 and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind in _TEXTS and isinstance(value, str):
        value.encode()
        return value
    if kind is ColumnType.bool and (isinstance(value, bool) or (isinstance(value, int) and value in (0, 1))):
        return bool(value)
    if kind in (ColumnType.int64, ColumnType.double) and isinstance(value, int | float) and not isinstance(value, bool):
        return _whole(value) if kind is ColumnType.int64 else _double(value)
    raise ValueError(kind)


def _whole(value: float) -> int:
    exact = isinstance(value, int) or (value.is_integer() and abs(value) < _EXACT)
    if not exact or not -(2**63) <= value < 2**63:
        raise ValueError("no whole number of 64 bits")
    return int(value)


def _double(value: float) -> float:
    found = float(value)
    if not math.isfinite(found) or (isinstance(value, int) and int(found) != value):
        raise ValueError("no number that a double holds")
    return found


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind))


def _lines(block: bytes) -> list[tuple[int, bytes]]:
    """The lines that hold a row, each with its number in the block."""
    return [(number, line) for number, line in enumerate(block.split(b"\n"), 1) if line.strip()]


def _has_key(block: bytes, column: str) -> bool:
    return any(json.dumps(column, ensure_ascii=ascii_only).encode() in block for ascii_only in (True, False))


def _kind(kind: pa.DataType) -> str:
    """The kind that JSON has; which numbers are whole, and which texts times, differs from block to block."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return "number"
    named = {
        pa.types.is_null: "null",
        pa.types.is_boolean: "bool",
        pa.types.is_list: "list",
        pa.types.is_struct: "object",
    }
    return next((name for fits, name in named.items() if fits(kind)), "text")


def _kind_of(value: Any) -> str:
    named = {bool: "bool", int: "number", float: "number", list: "list", dict: "object"}
    return named.get(type(value), "text")
