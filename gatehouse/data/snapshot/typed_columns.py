"""How a column of Parquet, which has a type of its own, is read: told by the functions that read it into a snapshot."""

from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.snapshot.column_types import SniffedColumn, too_many
from gatehouse.data.snapshot.epoch_units import unit_by_name, unit_of_our_years
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.snapshot.written_numbers import WrittenNumbers
from gatehouse.data.sources.declared import read_as, without_extension

_SAFE_DIGITS = 15
"""So many digits of a decimal every double keeps."""
_UNITS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}


@dataclass
class TypedColumn:
    """A column, and what is known of its values so far."""

    name: str
    type: pa.DataType
    kind: ColumnType | None = None
    """The type that it is read as; None for a column that a snapshot cannot hold."""
    rows: int = 0
    missing: int = 0
    misfits: int = 0
    low: float = float("inf")
    high: float = float("-inf")
    numbers: WrittenNumbers = field(default_factory=WrittenNumbers)

    @classmethod
    def of(cls, found: pa.Field) -> "TypedColumn":
        """The column before its values are looked at."""
        plain = without_extension(found.type)
        return cls(found.name, plain, _kind(plain))

    @property
    def _is_too_large(self) -> bool:
        return self.kind is ColumnType.int64 and self.misfits > 0

    def look(self, cells: pa.Array) -> None:
        """Take some cells, shape (rows,), into account."""
        self.missing += cells.null_count
        self.rows += len(cells) - cells.null_count
        if self.kind is None or self._is_too_large or cells.null_count == len(cells):
            return
        read = read_as(cells, self.kind, "UTC")
        assert read is not None  # asked for a type that the column's own becomes
        if read.fits is not None:
            self.misfits += pc.sum(pc.invert(read.fits)).as_py()
        if self.kind is ColumnType.string:
            self.numbers.look(read.values.drop_null())
        if self.kind in (ColumnType.int64, ColumnType.double) and read.values.null_count < len(cells):
            span = pc.min_max(read.values).as_py()
            self.low, self.high = min(self.low, span["min"]), max(self.high, span["max"])

    def told(self) -> SniffedColumn:
        """How it is read."""
        text = SniffedColumn(self.name, ColumnType.string, missing=self.missing)
        if self.kind is None:
            return replace(text, left_out=_why_left_out(self.type))
        if self._is_too_large:
            return replace(text, why_text="some of its numbers are larger than int64 holds")
        if self.kind is ColumnType.timestamp and too_many(self.misfits, self.rows):
            if self.type.unit == "ns":
                return replace(text, too_fine=True)
            return replace(text, why_text="most of its times are not in the years 1 to 9999")
        naive = self.kind is ColumnType.timestamp and getattr(self.type, "tz", None) is None
        told = replace(text, kind=self.kind, naive=naive, misfits=self.misfits, note=_note(self.type))
        if not too_many(self.numbers.others, self.rows):
            told = replace(told, marks=self.numbers.told())
        if self.low > self.high or pa.types.is_duration(self.type):
            return told
        # Of doubles it is only said: a text, which a column of times may be declared as, can hold no double.
        if self.kind is ColumnType.int64 and (unit := unit_by_name(self.name, self.low, self.high)):
            return replace(told, kind=ColumnType.timestamp, form=unit)
        return replace(told, epoch=unit_of_our_years(self.low, self.high))


def _kind(found: pa.DataType) -> ColumnType | None:
    """What a type is read as where its values allow it; None where a snapshot cannot hold it."""
    types = pa.types
    if types.is_boolean(found):
        return ColumnType.bool
    if types.is_integer(found) or types.is_duration(found) or (types.is_decimal(found) and found.scale <= 0):
        return ColumnType.int64
    if types.is_floating(found) or types.is_decimal(found):
        return ColumnType.double
    if types.is_timestamp(found) or types.is_date(found):
        return ColumnType.timestamp
    return ColumnType.string if types.is_null(found) or read_as(pa.array([], found), ColumnType.string) else None


def _note(found: pa.DataType) -> str:
    if pa.types.is_duration(found):
        return f"durations, read as whole numbers of {_UNITS[found.unit]}"
    if pa.types.is_decimal(found) and found.scale > 0 and found.precision > _SAFE_DIGITS:
        return f"decimals of up to {found.precision} digits, of which a double keeps {_SAFE_DIGITS}"
    return "times of day, read as text" if pa.types.is_time(found) else ""


def _why_left_out(found: pa.DataType) -> str:
    if pa.types.is_nested(found):
        return "it holds lists, structs or maps, make columns of them at the source"
    return f"it has the type {found}, write it as text or as numbers at the source"
