"""Exact casts: texts as Arrow reads them in a CSV, times as sources write them, and nothing changed in silence."""

import math
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.spec import ColumnType, TableSpec
from gatehouse.data.sources.declared import TYPES, read_as, read_texts, read_times

NUMBERS = st.text("0123456789-+.eExXaAfFiInN() \t_", max_size=22) | st.from_regex(
    r"[+-]?\d{1,21}(\.\d*)?([eE][+-]?\d{1,3})?", fullmatch=True
)
TIMES = (
    st.from_regex(
        r"(000[0-9]|19\d\d|20\d\d|9999)-[01]\d-[0-3]\d[ Tt][0-2]\d(:[0-6]\d(:[0-6]\d(\.\d{0,8})?)?)?"
        r"([Zz]|[+-]\d{2}(:?\d{2})?)?",
        fullmatch=True,
    )
    | st.datetimes().map(lambda time: f"{time.isoformat()}Z")
    | st.dates().map(lambda day: f"{day.isoformat()}T10+01")
    | st.text("0123456789-:TZ +.", max_size=26)
)
BOOLS = st.sampled_from(
    ["true", "True", "TRUE", "tRue", "1", "0", "01", "false", "FALSE", "False", " true", "t", "yes"]
)
AT = datetime(2013, 3, 31, 1, 30, tzinfo=UTC)
MICROSECONDS = int(AT.timestamp()) * 1_000_000


def _arrow(text: str, kind: ColumnType) -> Any:
    """The value that Arrow's CSV reader gives a quoted cell, without those that it reads though they are none."""
    try:
        table = pa.csv.read_csv(
            pa.BufferReader(f'"{text}"\n'.encode()),
            read_options=pa.csv.ReadOptions(column_names=["cell"]),
            convert_options=pa.csv.ConvertOptions(column_types={"cell": TYPES[kind]}, null_values=[]),
        )
    except pa.ArrowInvalid:
        return "refused"
    value = table["cell"][0]
    if kind is ColumnType.timestamp:
        microseconds = value.cast(pa.int64()).as_py()
        return microseconds if -62135596800 * 10**6 <= microseconds < 253402300800 * 10**6 else "refused"
    number = value.as_py()
    rounded = isinstance(number, float) and math.isinf(number) and "n" not in text.lower()
    return "refused" if rounded or (kind is ColumnType.int64 and "x" in text.lower()) else number


def _agree(texts: list[str], kind: ColumnType) -> None:
    read = read_texts(pa.array(texts).cast(pa.binary()), kind)
    values = read.values.cast(pa.int64()) if kind is ColumnType.timestamp else read.values
    fits = [True] * len(texts) if read.fits is None else read.fits.to_pylist()
    cast = [value if fit else "refused" for value, fit in zip(values.to_pylist(), fits, strict=True)]
    assert [str(value) for value in cast] == [str(_arrow(text, kind)) for text in texts], texts


@pytest.mark.parametrize("kind", [ColumnType.int64, ColumnType.double])
@given(st.lists(NUMBERS, min_size=1, max_size=8))
@example(["9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"])
@example(["0xff", "0xfffffffffffffffff", "-0x1", " 1\t", "00000000000000000000000001", "1e400", "-inf", "nan(1)"])
@settings(max_examples=300, deadline=None)
def test_numbers_are_those_that_arrow_reads(kind: ColumnType, texts: list[str]) -> None:
    _agree(texts, kind)


@pytest.mark.parametrize("kind", [pa.decimal128(38, 2), pa.decimal128(20, 0), pa.decimal256(60, 20)])
@given(st.integers(-(10**17), 10**17))
@example(9999)
@example(123456789)
@settings(max_examples=100, deadline=None)
def test_a_decimal_becomes_the_nearest_double(kind: pa.DataType, digits: int) -> None:
    value = Decimal(digits).scaleb(-kind.scale)
    read = read_as(pa.array([value], kind), ColumnType.double)
    assert read is not None and read.values.to_pylist() == [float(value)]


@given(st.lists(TIMES, min_size=1, max_size=8))
@example(["1900-02-29T00:00:00Z", "2000-02-29T00:00:00Z", "2024-02-29 10Z", "2024-04-31T00:00:00Z"])
@example(["0000-02-29T00:00:00Z", "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2024-01-21T00:00:00Z"])
@settings(max_examples=400, deadline=None)
def test_times_are_those_that_arrow_reads(texts: list[str]) -> None:
    _agree(texts, ColumnType.timestamp)


@given(st.lists(BOOLS, min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_bools_are_those_that_arrow_reads(texts: list[str]) -> None:
    _agree(texts, ColumnType.bool)


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=6))
@settings(max_examples=100, deadline=None)
def test_text_is_what_is_utf_8(cells: list[bytes]) -> None:
    def decoded(cell: bytes) -> str | None:
        try:
            return cell.decode()
        except UnicodeDecodeError:
            return None

    read = read_texts(pa.array(cells, pa.binary()), ColumnType.string)
    texts = [decoded(cell) for cell in cells]
    assert read.values.to_pylist() == texts
    assert (read.fits is None) == (None not in texts)


def _times(values: list[Any], form: str = "", zone: str = "", kind: pa.DataType | None = None) -> list[Any]:
    """The times, with `misfit` in place of a value that does not fit."""
    read = read_times(pa.array(values, kind), zone, form)
    assert read is not None
    fits = [True] * len(values) if read.fits is None else read.fits.to_pylist()
    return [time if fit else "misfit" for time, fit in zip(read.values.to_pylist(), fits, strict=True)]


@pytest.mark.parametrize(
    ("form", "value", "kind"),
    [
        ("seconds", MICROSECONDS // 10**6, pa.int64()),
        ("seconds", MICROSECONDS / 10**6, pa.float64()),
        ("seconds", str(MICROSECONDS // 10**6), pa.string()),
        ("milliseconds", MICROSECONDS // 1000, pa.uint64()),
        ("milliseconds", f"{MICROSECONDS // 1000}.0", pa.string()),
        ("microseconds", MICROSECONDS, pa.int64()),
        ("nanoseconds", MICROSECONDS * 1000 + 999, pa.int64()),
        ("nanoseconds", str(MICROSECONDS * 1000 + 999), pa.string()),
        ("nanoseconds", MICROSECONDS * 1000 + 999, pa.decimal128(20)),
        ("%d.%m.%Y %H:%M", "31.03.2013 01:30", pa.string()),
        ("%m/%d/%y %I:%M:%S %p", "3/31/13 1:30:00 am", pa.string()),
        ("%d %b %Y %H:%M:%S.%f", "31 Mar 2013 01:30:00.0", pa.string()),
        ("%B %d, %Y %H:%M %z", "march 31, 2013 03:30 +02:00", pa.large_string()),
        ("%Y%m%dT%H%M%S%z", "20130331T013000Z", pa.string()),
    ],
)
def test_times_in_every_form(form: str, value: Any, kind: pa.DataType) -> None:
    assert _times([value, None], form, "UTC", kind) == [AT, None]


@given(st.datetimes(datetime(1000, 1, 2), datetime(9999, 12, 30)), st.integers(-1439, 1439))
@settings(max_examples=100, deadline=None)
def test_formats_read_what_python_writes(time: datetime, minutes: int) -> None:
    moment = time.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    text = f"{moment.day}.{moment.month}.{moment.year:04d} {moment.hour}:{moment:%M:%S.%f%z}"
    assert _times([text], "%d.%m.%Y %H:%M:%S.%f%z") == [moment.astimezone(UTC)]
    microseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert _times([str(microseconds)], "microseconds") == [moment.astimezone(UTC)]


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%d.%m.%Y", ["31.02.2013", "00.01.2013", "1.13.2013", "1.1.13", "1.1.0000", "epoch", "infinity"]),
        ("%d.%m.%Y %H:%M", ["1.1.2013 24:00", "1.1.2013 10:60", "1.1.2013"]),
        ("%Y-%m-%d %I %p", ["2013-01-01 13 pm", "2013-01-01 0 am"]),
        ("seconds", ["1e9", "12:00", "1364693400.1234567", "9" * 18, "", "0x10"]),
        ("microseconds", ["1364693400.5", str(2**62)]),
        ("seconds", [10**18, -(10**18), 3 * 10**11]),
        ("seconds", [1e300, float("nan"), float("inf")]),
    ],
)
def test_what_is_no_time_of_a_form_does_not_fit(form: str, values: list[Any]) -> None:
    assert _times(values, form, "UTC") == ["misfit"] * len(values)


@pytest.mark.parametrize("form", ["", "%Y-%m-%d %H:%M:%S"])
def test_times_that_clocks_skip_or_show_twice_do_not_fit(form: str) -> None:
    texts = ["2013-03-31 02:30:00", "2013-10-27 02:30:00", "2013-07-01 12:00:00", "soon"]
    assert _times(texts, form, "Europe/Rome") == ["misfit", "misfit", datetime(2013, 7, 1, 10, tzinfo=UTC), "misfit"]


def test_nanoseconds_do_not_fit_unless_they_are_zero() -> None:
    texts = ["2013-03-31T01:30:00.123456789Z", "2013-03-31T01:30:00.000000000Z"]
    assert _times(texts) == ["misfit", AT]
    exact = pa.array([MICROSECONDS * 1000 + 1, MICROSECONDS * 1000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    assert _times(list(exact), kind=exact.type) == ["misfit", AT]


@pytest.mark.parametrize(
    "times", [{"at": "minutes"}, {"at": "%d.%m.%Q"}, {"at": "%d.%m"}, {"at": "%Y-%m-%d %I"}, {"n": "seconds"}]
)
def test_a_form_that_is_none_is_refused(times: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"times|at: expected seconds"):
        TableSpec.model_validate({"columns": {"at": "timestamp", "n": "int64"}, "times": times})
