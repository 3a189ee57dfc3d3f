"""Casts what a user sends to its declared type: exactly, or with an error that names the value, its place and the type.

A cast looks at one value alone: what the other rows hold never decides whether a text is a number or a time. Only
numbers with a fraction are rounded, to the nearest of their type, as the digits that they were written with always are.
"""

import math
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.messages.values import Unfit, boolean, double, moment, text, whole
from gatehouse.data.snapshot.spec import ColumnType
from gatehouse.data.sources.casts import Read, by_halving, mask_of, read_texts
from gatehouse.errors import ConfigurationError
from gatehouse.store.hidden_values import unless_hidden

TIME = pa.timestamp("us", "UTC")
DECLARED = {
    "string": pa.string(),
    "int64": pa.int64(),
    "numeric": pa.float64(),  # Rounded where it is computed with, and not before.
    "double": pa.float64(),
    "categorical": pa.string(),
}
"""The type of a key or a request value, by what definitions call it."""
Place = Callable[[int], str]
"""Names the place of a value, by its number from 0 on: `keys.csv: order in row 3`."""
Reader = Callable[[Any, bool], Any]
_COLUMN_TYPES = {
    pa.string(): ColumnType.string,
    pa.int64(): ColumnType.int64,
    pa.float64(): ColumnType.double,
    TIME: ColumnType.timestamp,
}
_WHOLE_DOUBLES = 2**53
"""From here on a double may stand for another whole number than the one that was written."""
_MANY_DIGITS = r"^\s*[+-]?\d{16,}\s*$"
_DAY_OR_MONTH = re.compile(r"\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}")
_MICROSECONDS = {"s": 1_000_000, "ms": 1000}
_SHOWN = 40  # characters of a value
_WORDS = {
    pa.types.is_integer: "a whole number of type {}",
    pa.types.is_floating: "a number that the type {} holds",
    pa.types.is_timestamp: "a time in ISO 8601, such as 2024-02-01T14:00:00Z, that the type {} holds",
    pa.types.is_boolean: "true or false",
    pa.types.is_string: "text",
    lambda _: True: "a value of type {}",
}


def row_of(column: str) -> Place:
    """Names the rows of a column, which `column` says, as people count them: from 1 on."""
    return lambda number: f"{column} in row {number + 1}"


def reader_of(kind: pa.DataType, what: str) -> Reader:
    """Reads a value as a type, as the converters of `messages.values` do.

    Raises:
        ConfigurationError: if no value is read as that type; it says that `what` is of it.
    """
    if pa.types.is_integer(kind):
        return lambda value, typed: whole(value, typed, kind.bit_width, pa.types.is_signed_integer(kind))
    if pa.types.is_floating(kind):
        return lambda value, typed: _finite(value, typed, kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return lambda value, _: text(value)
    if pa.types.is_boolean(kind):
        return boolean
    if pa.types.is_timestamp(kind) and kind.tz:
        return lambda value, _: _held(moment(value), kind)
    raise ConfigurationError(
        f"{what} is {kind}; expected integers, numbers, text, true or false, and times with a zone."
    )


def cast_values(values: Iterable[object], kind: pa.DataType, place: Place) -> pa.Array:
    """Values of JSON or Python, such as 2.0 for the whole number 2; None is a missing value.

    Raises:
        ConfigurationError: for the first value that is none of the type; NaN and infinities are none.
    """
    read, found = reader_of(kind, place(0)), []
    for number, value in enumerate(values):
        try:
            found.append(None if value is None else read(_plain(value, kind), True))
        except Unfit as error:
            raise _refused(place(number), str(error), repr(value)) from None
    return pa.array(found, kind)


def cast_texts(column: pa.ChunkedArray, kind: pa.DataType, place: Place) -> pa.ChunkedArray:
    """Texts of a CSV file, read as those of a source are; times are in ISO 8601, in UTC where they state no zone.

    Raises:
        ConfigurationError: for the first text that is none of the type.
    """
    cells = pc.cast(column.combine_chunks(), pa.binary())
    read = read_texts(cells, _COLUMN_TYPES[kind], decimal=".", zone="UTC", form="")
    if pa.types.is_floating(kind):
        read = _as_written(read, cells.view(pa.string()))
    return _checked(read, column, kind, place)


def cast_column(column: pa.ChunkedArray, kind: pa.DataType, place: Place) -> pa.ChunkedArray:
    """A column of a table. Texts, numbers and bools stay what they are: 7 is not the key `007`. Times may be texts.

    Raises:
        ConfigurationError: for the first value that the type does not hold.
    """
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    families = (_family(column.type), _family(kind))
    if families == ("text", "time"):
        return cast_column(cast_texts(column.cast(pa.string()), TIME, place), kind, place)
    if not pa.types.is_null(column.type) and families[0] != families[1]:
        return _checked(Read(pa.nulls(len(column), kind), column.is_null().combine_chunks()), column, kind, place)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        return pa.chunked_array([cast_values(column.to_pylist(), kind, place)])
    try:
        return _within(column, kind)
    except (pa.ArrowInvalid, ValueError):
        read = by_halving(column.combine_chunks(), lambda piece: _within(piece, kind), kind)
        return _checked(read, column, kind, place)


def _plain(value: object, kind: pa.DataType) -> object:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and pa.types.is_integer(kind) and value.is_integer() and abs(value) < _WHOLE_DOUBLES:
        return int(value)
    if isinstance(value, Decimal) and value.is_finite():
        return int(value) if value == value.to_integral_value() else float(value)
    return value


def _finite(value: Any, typed: bool, kind: pa.DataType) -> float:
    """The number rounded as its column stores it, so that it compares equal with the stored value."""
    found = float(pa.scalar(double(value, typed), kind).as_py())
    if not math.isfinite(found):
        raise Unfit(f"a finite number of {kind.bit_width} bits")
    if isinstance(value, int) and int(found) != value:
        raise Unfit(f"a number that {kind.bit_width} bits hold")
    return found


def _held(found: datetime, kind: pa.DataType) -> datetime:
    if found.microsecond % _MICROSECONDS.get(kind.unit, 1):
        raise Unfit(f"a time in whole {kind.unit}, as its column has it")
    try:
        pa.scalar(found, kind)
    except (ValueError, OverflowError):
        raise Unfit("a time in the years 1678 to 2261, as its column is in ns") from None
    return found


def _as_written(read: Read, texts: pa.Array) -> Read:
    """Doubles without those whose text is no finite number, or a whole number that no double holds."""
    fits = pc.is_finite(read.values).fill_null(False).to_numpy(zero_copy_only=False).copy()
    for row in pc.indices_nonzero(pc.match_substring_regex(texts, _MANY_DIGITS)).to_pylist():
        fits[row] = fits[row] and Decimal(texts[row].as_py()) == Decimal(read.values[row].as_py())
    return Read(read.values, mask_of(texts, pa.array(fits)))


def _within(array: Any, kind: pa.DataType) -> Any:
    """Arrow's safe cast, which refuses all but that a number is too large for a shorter float."""
    found = pc.cast(array, kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(array.type):
        lost = pc.and_(pc.is_inf(found), pc.invert(pc.is_inf(array)))
        if pc.any(lost, min_count=0).as_py():
            raise ValueError(f"beyond {kind}")
    return found


def _checked(read: Read, column: pa.ChunkedArray, kind: pa.DataType, place: Place) -> pa.ChunkedArray:
    if read.fits is None or pc.all(read.fits, min_count=0).as_py():
        return pa.chunked_array([read.values])
    row = pc.index(read.fits, False).as_py()
    value, typed = str(column[row]), _family(column.type) != "text"
    expected = next(words for held, words in _WORDS.items() if held(kind)).format(kind)
    if not typed and pa.types.is_timestamp(kind) and _DAY_OR_MONTH.match(value):
        expected += " (nothing says which number is the day and which the month)"
    raise _refused(place(row), expected, f"{value} ({column.type})" if typed else repr(value))


def _refused(place: str, expected: str, value: str) -> ConfigurationError:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return ConfigurationError(f"{place}: expected {expected}, or null, {unless_hidden(f'found {shown}')}.")


def _family(kind: pa.DataType) -> str:
    """What values of a type are; empty for what only Arrow can tell, such as lists."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_boolean(kind):
        return "truth"
    return "time" if types.is_timestamp(kind) or types.is_date(kind) else ""
