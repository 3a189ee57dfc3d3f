"""What is measured of a column depends on its kind: whole or real numbers, texts, truth values, times, or nothing."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[Any]
_EPOCH = datetime(1970, 1, 1)


class Kind(StrEnum):
    """The kinds. Of `other` (lists, structs, bytes, durations) only nulls are counted."""

    WHOLE = "whole"
    REAL = "real"
    TEXT = "text"
    TRUTH = "truth"
    TIME = "time"
    OTHER = "other"


def kind_of(arrow: pa.DataType) -> Kind:
    """The kind of an Arrow type; that of a dictionary is the kind of its values."""
    types = pa.types
    if types.is_dictionary(arrow):
        return kind_of(arrow.value_type)
    if types.is_boolean(arrow):
        return Kind.TRUTH
    if types.is_integer(arrow):
        # An unsigned number of 64 bits does not fit into a signed one; as a double it blurs above 2^53.
        return Kind.REAL if types.is_uint64(arrow) else Kind.WHOLE
    if types.is_floating(arrow) or types.is_decimal(arrow):
        return Kind.REAL
    if types.is_string(arrow) or types.is_large_string(arrow) or types.is_string_view(arrow):
        return Kind.TEXT
    if types.is_timestamp(arrow) or types.is_date(arrow):
        return Kind.TIME
    return Kind.OTHER


def numbers_of(values: pa.Array, kind: Kind) -> Numbers:
    """Values without nulls as int64 or float64, shape (rows,).

    Truth values are 0 and 1, times microseconds since 1970 in UTC.
    """
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if kind is Kind.TRUTH:
        values = pc.cast(values, pa.int64())
    elif kind is Kind.TIME:
        values = pc.cast(pc.cast(values, pa.timestamp("us"), safe=False), pa.int64())
    elif kind is Kind.REAL:
        # Adding nothing turns -0.0, which equals 0.0 and would be written otherwise, into it.
        return np.asarray(pc.cast(values, pa.float64(), safe=False).to_numpy()) + 0.0
    numbers: Numbers = pc.cast(values, pa.int64()).to_numpy()
    return numbers


def time_text(microseconds: int, arrow: str) -> str:
    """A time as ISO 8601: a date for a date column, with its zone where the column has one.

    Years that Python's calendar does not reach are written as numpy writes them.

    Args:
        microseconds: Since 1970 in UTC.
        arrow: Name of the column's Arrow type.
    """
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return str(np.datetime64(microseconds, "us"))
    if arrow.startswith("date"):
        return moment.date().isoformat()
    return (moment.replace(tzinfo=UTC) if "tz=" in arrow else moment).isoformat()
