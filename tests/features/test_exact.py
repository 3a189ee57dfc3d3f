"""Casts of what a user sends: the same value in the declared type, or an error that names its place."""

import math
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.features.exact import TIME, cast_column, cast_texts, cast_values, row_of

WHOLE = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
KINDS = [*WHOLE, pa.float32(), pa.float64(), pa.bool_(), pa.string()]
EDGES = st.sampled_from([2**53 + 1, 2**53 - 1, 2**24 + 1, 2**63, -(2**63), 2**64 - 1, 10**30, 2**2000, 1.7, -0.5, 300])
VALUES = st.booleans() | st.integers(-300, 300) | st.integers() | st.floats() | st.text() | st.none() | EDGES
VALUES |= st.integers(-300, 300).map(float) | EDGES.map(lambda value: float(value) if value < 2**1000 else value)
NUMBERS = st.from_regex(
    r"(?a)[ +-]?\d{1,20}(\.\d{0,3})?([eE][+-]?\d{1,3})?|0x[0-9a-f]{1,4}|nan|inf|1,5|", fullmatch=True
)
TIMES = st.datetimes().map(str) | st.sampled_from(["01/02/2024", "13/01/2024", "2024-02-30", "2024-02-01", "1.2.2024"])
TIMES |= st.sampled_from(["2024-01-01T00:00:00.000000000Z", "2024-01-01T00:00:00.000000001Z", "2024-01-01T01+01:00"])


def holds(value: Any, kind: pa.DataType) -> bool:
    """Whether a type has a value, by Python's own arithmetic."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if pa.types.is_boolean(kind):
        return isinstance(value, bool)
    if pa.types.is_string(kind):
        return isinstance(value, str)
    if pa.types.is_integer(kind):
        exact = isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 2**53)
        bits = kind.bit_width
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1)) if pa.types.is_signed_integer(kind) else (0, 2**bits)
        return number and exact and low <= value < high
    try:
        with np.errstate(over="ignore"):
            stored = float(np.dtype(kind.to_pandas_dtype()).type(float(value))) if number else math.nan
    except OverflowError:
        return False
    return math.isfinite(stored) and (isinstance(value, float) or int(stored) == value)


@given(st.lists(VALUES, max_size=5), st.sampled_from(KINDS))
@example([2.0, 1.7], pa.int64())
@example([-0.5], pa.uint8())
@example([2**53 + 1], pa.float64())
@example([float(2**53)], pa.int64())
@example(["1.7"], pa.int64())
@example([True], pa.int64())
@example([math.nan], pa.float64())
@example([1e39], pa.float32())
@settings(max_examples=600, deadline=None)
def test_a_value_is_itself_in_the_declared_type_or_refused(values: list[Any], kind: pa.DataType) -> None:
    misfits = [place for place, value in enumerate(values) if value is not None and not holds(value, kind)]
    if misfits:
        with pytest.raises(ConfigurationError, match=rf"^data\[{misfits[0]}\]: "):
            cast_values(values, kind, "data[{}]".format)
        return
    expected = [
        np.float32(value).item() if pa.types.is_float32(kind) and value is not None else value for value in values
    ]
    column = cast_values(values, kind, "data[{}]".format)
    assert column.type == kind and column.to_pylist() == expected


def meaning(text: str, kind: pa.DataType) -> Any:
    """What a text is as a type, by Python's own readers; None for nothing."""
    if kind == pa.int64():
        return int(text) if re.fullmatch(r"(?a)\s*-?\d+\s*", text) and -(2**63) <= int(text) < 2**63 else None
    if kind == pa.float64():
        number = float(text) if re.fullmatch(r"(?a)\s*[+-]?\d+\.?\d*([eE][+-]?\d+)?\s*", text) else math.inf
        whole = re.fullmatch(r"(?a)\s*[+-]?\d+\s*", text)
        return None if math.isinf(number) or (whole and Decimal(text) != Decimal(number)) else number
    if kind == TIME:
        if not re.match(r"\d{4}-\d\d-\d\d", text) or re.search(r"\.\d{6}\d*[1-9]", text):
            return None
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            return None
        return time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    return text


@pytest.mark.parametrize(
    ("kind", "texts"),
    [(pa.int64(), NUMBERS), (pa.float64(), NUMBERS), (TIME, TIMES), (pa.string(), NUMBERS | TIMES | st.text())],
)
@given(data=st.data())
@settings(max_examples=300, deadline=None)
def test_a_text_is_what_it_is_alone_whatever_the_other_rows_hold(kind: pa.DataType, texts: Any, data: Any) -> None:
    drawn = data.draw(st.lists(texts, min_size=1, max_size=5))
    expected = [meaning(text, kind) for text in drawn]
    column = pa.chunked_array([pa.array([*drawn, None], pa.string())])
    if None in expected:
        with pytest.raises(ConfigurationError, match=rf"^x in row {expected.index(None) + 1}: "):
            cast_texts(column, kind, row_of("x"))
        return
    assert cast_texts(column, kind, row_of("x")).to_pylist() == [*expected, None]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array([0, 1.7]), pa.int64()),
        (pa.array([0, 300]), pa.uint8()),
        (pa.array([0, 2**53 + 1]), pa.float64()),
        (pa.array([0, 1e39]), pa.float32()),
        (pa.array([Decimal(0), Decimal(2**53 + 1)]), pa.float64()),
        (pa.array([None, 7]), pa.string()),
        (pa.array([None, "7"]), pa.int64()),
        (pa.array([None, 1_704_067_200]), TIME),
        (pa.array([None, "01/02/2024"]), TIME),
        (pa.array([0, 1001], pa.timestamp("ns", "UTC")), TIME),
    ],
)
def test_the_row_of_the_first_value_that_does_not_fit_is_named(column: pa.Array, kind: pa.DataType) -> None:
    chunks = pa.chunked_array([column.slice(0, 1), column.slice(1)])
    with pytest.raises(ConfigurationError, match=r"^key in row 2: "):
        cast_column(chunks, kind, row_of("key"))
