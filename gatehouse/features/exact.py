"""Casts what a user sends to its declared type: exactly, or with an error that names the value, its place and the type.

A cast looks at one value alone: the other rows never decide whether a text is a number or a time. Only numbers with a
fraction are rounded, to the nearest of their type, as their digits always are.
"""

import math
import re
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.data.json_values import Unfit, boolean, double, text, whole
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
"""The type of a key or a request value, by its kind in definitions."""
Place = Callable[[int], str]
"""Names the place of a value, by its number from 0 on: `keys.csv: order in row 3`."""
_WHOLE_DOUBLES = 2**53
"""From here on a double may stand for another whole number than the one that was written."""
_WHOLE = re.compile(r"\s*-?\d+\s*", re.ASCII)
_NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
_MORE_THAN_MICROSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]")
_SHOWN = 40  # characters of a value


def row_of(column: str) -> Place:
    """Names the rows of a column as people count them: from 1 on."""
    return lambda number: f"{column} in row {number + 1}"


def _reader_of(kind: pa.DataType) -> Callable[[Any], Any]:
    """Reads a value as an integer, a float, text or a truth value, as the converters of `json_values` do."""
    if pa.types.is_integer(kind):
        return lambda value: whole(value, kind.bit_width, pa.types.is_signed_integer(kind))
    if pa.types.is_floating(kind):
        return lambda value: _finite(value, kind)
    return text if pa.types.is_string(kind) else boolean


def cast_values(values: Iterable[object], kind: pa.DataType, place: Place) -> pa.Array:
    """Values of JSON or Python as integers, floats, text or truth values, such as 2.0 for 2; None is a missing value.

    Raises ConfigurationError for the first value that is not of the type, such as NaN or an infinity.
    """
    reader = _reader_of(kind)

    def read(value: object) -> Any:
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, float) and pa.types.is_integer(kind):
            value = int(value) if value.is_integer() and abs(value) < _WHOLE_DOUBLES else value
        if isinstance(value, Decimal) and value.is_finite():
            value = int(value) if value == value.to_integral_value() else float(value)
        return reader(value)

    return _read(values, read, kind, place)


def cast_texts(column: pa.ChunkedArray, kind: pa.DataType, place: Place) -> pa.ChunkedArray:
    """Texts of a CSV file as text, int64, float64 or `TIME`; times are in ISO 8601, in UTC if they state no zone.

    Raises ConfigurationError for the first text that is not of the type.
    """

    def read(value: str) -> Any:
        if kind == TIME:
            return _time(value)
        if kind == pa.int64():
            if not _WHOLE.fullmatch(value) or len(value) > _SHOWN:
                raise Unfit("a whole number")
            return whole(int(value))
        if kind == pa.float64():
            number = float(value) if _NUMBER.fullmatch(value) else math.inf
            exact = value.strip().lstrip("+-").isdecimal()
            if math.isinf(number) or (exact and Decimal(value) != Decimal(number)):
                raise Unfit("a number that a double holds")
            return number
        return text(value)

    return pa.chunked_array([_read(column.to_pylist(), read, kind, place)])


def cast_column(column: pa.ChunkedArray, kind: pa.DataType, place: Place) -> pa.ChunkedArray:
    """A column of a table. Texts, numbers and bools stay what they are: 7 is not the key `007`. Times may be texts.

    Raises ConfigurationError for the first value that the type does not hold.
    """
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    families = (_family(column.type), _family(kind))
    if families == ("text", "time"):
        return cast_column(cast_texts(column.cast(pa.string()), TIME, place), kind, place)
    if pa.types.is_decimal(column.type) and pa.types.is_floating(kind):
        return pa.chunked_array([cast_values(column.to_pylist(), kind, place)])
    alike = pa.types.is_null(column.type) or families[0] == families[1]
    try:
        if not alike and column.null_count < len(column):
            raise ValueError("another family")
        return _cast(column, kind) if alike else pa.chunked_array([pa.nulls(len(column), kind)])
    except (pa.ArrowInvalid, ValueError):
        row = pc.index(column.is_valid(), True).as_py()
        if alike:  # The first row without which all rows before it can be cast, by bisection.
            fitting, failing = 0, len(column)
            while failing - fitting > 1:
                middle = (fitting + failing) // 2
                try:
                    _cast(column.slice(0, middle), kind)
                    fitting = middle
                except (pa.ArrowInvalid, ValueError):
                    failing = middle
            row = failing - 1
        raise _refused(place(row), f"a value that the type {kind} holds", f"{column[row]} ({column.type})") from None


def _read(values: Iterable[Any], read: Callable[[Any], Any], kind: pa.DataType, place: Place) -> pa.Array:
    converted = []
    for number, value in enumerate(values):
        try:
            converted.append(None if value is None else read(value))
        except Unfit as error:
            raise _refused(place(number), str(error), repr(value)) from None
    return pa.array(converted, kind)


def _finite(value: Any, kind: pa.DataType) -> float:
    """The number rounded as its column stores it, so that it compares equal with the stored value."""
    number = float(pa.scalar(double(value), kind).as_py())
    if not math.isfinite(number):
        raise Unfit(f"a finite number of {kind.bit_width} bits")
    if isinstance(value, int) and int(number) != value:
        raise Unfit(f"a number that {kind.bit_width} bits hold")
    return number


def _time(value: str) -> datetime:
    if _MORE_THAN_MICROSECONDS.search(value):
        raise Unfit("a time in ISO 8601, to the microsecond")
    try:
        time = datetime.fromisoformat(value)
        return (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except ValueError:
        raise Unfit("a time in ISO 8601") from None
    except OverflowError:
        raise Unfit("a time in ISO 8601 that is in the years 1 to 9999 in UTC") from None


def _cast(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Arrow's safe cast, which refuses all but that a number is too large for a shorter float."""
    converted = pc.cast(column, kind)
    if pa.types.is_floating(kind) and pa.types.is_floating(column.type):
        lost = pc.and_(pc.is_inf(converted), pc.invert(pc.is_inf(column)))
        if pc.any(lost, min_count=0).as_py():
            raise ValueError(f"beyond {kind}")
    return converted


def _refused(place: str, expected: str, value: str) -> ConfigurationError:
    shown = value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…"
    return ConfigurationError(f"{place}: expected {expected}, or null, {unless_hidden(f'found {shown}')}.")


def _family(kind: pa.DataType) -> str:
    """Whether values of a type are texts, numbers, truths or times; empty for what only Arrow can cast, as lists."""
    types = pa.types
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "text"
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "number"
    if types.is_boolean(kind):
        return "truth"
    return "time" if types.is_timestamp(kind) or types.is_date(kind) else ""
