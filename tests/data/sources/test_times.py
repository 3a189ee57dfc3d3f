"""How sources write times: units since 1970, stated formats, clocks of a zone; and what is told of misfits."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.snapshot.spec import TableSpec
from gatehouse.data.sources.times import read_times

AT = datetime(2013, 3, 31, 1, 30, tzinfo=UTC)
MICROSECONDS = int(AT.timestamp()) * 1_000_000


def _read(values: list[Any], form: str = "", zone: str = "", kind: pa.DataType | None = None) -> tuple[list[Any], Any]:
    read = read_times(pa.array(values, kind), zone, form)
    assert read is not None
    return read.values.to_pylist(), read.misfits()


@pytest.mark.parametrize(
    ("form", "values", "kind"),
    [
        ("seconds", [MICROSECONDS // 10**6, None], pa.int64()),
        ("seconds", [MICROSECONDS / 10**6, None], pa.float64()),
        ("seconds", [str(MICROSECONDS // 10**6), None], pa.string()),
        ("milliseconds", [MICROSECONDS // 1000, None], pa.uint64()),
        ("milliseconds", [f"{MICROSECONDS // 1000}.0", None], pa.string()),
        ("microseconds", [MICROSECONDS, None], pa.int64()),
        ("%d.%m.%Y %H:%M", ["31.03.2013 01:30", None], pa.string()),
        ("%m/%d/%y %I:%M:%S %p", ["3/31/13 1:30:00 am", None], pa.string()),
        ("%d %b %Y %H:%M:%S.%f", ["31 Mar 2013 01:30:00.0", None], pa.string()),
        ("%B %d, %Y %H:%M %z", ["march 31, 2013 03:30 +02:00", None], pa.large_string()),
        ("%Y%m%dT%H%M%S%z", ["20130331T013000Z", None], pa.string()),
    ],
)
def test_times_in_every_form(form: str, values: list[Any], kind: pa.DataType) -> None:
    assert _read(values, form, "UTC", kind) == ([AT, None], {})


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)), st.integers(-1439, 1439))
@settings(max_examples=300, deadline=None)
def test_formats_read_what_python_writes(time: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    moment = time.replace(tzinfo=zone)
    text = f"{moment.day}.{moment.month}.{moment.year:04d} {moment.hour}:{moment:%M:%S.%f%z}"
    assert _read([text], "%d.%m.%Y %H:%M:%S.%f%z") == ([moment.astimezone(UTC)], {})
    seconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert _read([str(seconds)], "microseconds") == ([moment.astimezone(UTC)], {})


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("%d.%m.%Y", ["31.02.2013", "00.01.2013", "1.13.2013", "1.1.13", " 1.1.2013", "1.1.0000"]),
        ("%d.%m.%Y %H:%M", ["1.1.2013 24:00", "1.1.2013 10:60", "1.1.2013"]),
        ("%Y-%m-%d %I %p", ["2013-01-01 13 pm", "2013-01-01 0 am"]),
        ("%Y-%m-%d %z", ["2013-01-01 +24:00", "2013-01-01 +01:60"]),
        ("seconds", ["1e9", "12:00", "1364693400.1234567", "9" * 18, "", "0x10"]),
        ("microseconds", ["1364693400.5", str(2**62)]),
    ],
)
def test_what_is_no_time_of_a_form_does_not_fit(form: str, values: list[str]) -> None:
    found, misfits = _read(values, form, "UTC")
    assert found == [None] * len(values)
    assert sorted(misfits) == list(range(len(values)))


def test_numbers_beyond_every_calendar_do_not_fit() -> None:
    assert _read([10**18, -(10**18), 0], "seconds") == ([None, None, datetime(1970, 1, 1, tzinfo=UTC)], {0: "", 1: ""})
    assert list(_read([1e300, float("nan"), float("inf")], "seconds")[1]) == [0, 1, 2]
    assert _read([3 * 10**11], "seconds")[1] == {0: "in the years 1 to 9999"}


@pytest.mark.parametrize("form", ["", "%Y-%m-%d %H:%M:%S"])
def test_gaps_and_repeats_of_clocks_are_told_as_such(form: str) -> None:
    texts = ["2013-03-31 02:30:00", "2013-10-27 02:30:00", "2013-07-01 12:00:00", "soon"]
    values, misfits = _read(texts, form, "Europe/Rome")
    assert values == [None, None, datetime(2013, 7, 1, 10, tzinfo=UTC), None]
    assert misfits == {
        0: "not one that clocks in Europe/Rome skip",
        1: "not one that clocks in Europe/Rome show twice",
        3: "",
    }


def test_nanoseconds_are_told_as_such() -> None:
    texts = ["2013-03-31T01:30:00.123456789Z", "2013-03-31T01:30:00Z"]
    assert _read(texts) == ([None, AT], {0: "without nanoseconds"})
    exact = pa.array([MICROSECONDS * 1000 + 1, MICROSECONDS * 1000], pa.int64()).cast(pa.timestamp("ns", "UTC"))
    read = read_times(exact, "")
    assert read is not None and read.values.to_pylist() == [None, AT] and read.misfits() == {0: "without nanoseconds"}


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.decimal128(20)])
def test_declared_nanoseconds_are_cut_to_the_microsecond(kind: pa.DataType) -> None:
    given = pa.array([MICROSECONDS * 1000 + 999, -1, None], pa.int64()).cast(kind)
    read = read_times(given, "", "nanoseconds")
    before = datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    assert read is not None and read.values.to_pylist() == [AT, before, None] and not read.misfits()


def test_numbers_are_times_only_where_the_declaration_says_so() -> None:
    assert read_times(pa.array([1]), "UTC") is None
    assert read_times(pa.array([1]), "UTC", "%Y") is None
    assert read_times(pa.array([True]), "UTC", "seconds") is None


@pytest.mark.parametrize(
    ("times", "said"),
    [
        ({"at": "minutes"}, "expected seconds, milliseconds, microseconds, nanoseconds or a format such as"),
        ({"at": "%d.%m.%Q"}, "which has %Q: known are"),
        ({"at": "%d.%m"}, "which states no year, month and day"),
        ({"at": "%Y-%m-%d %d"}, "states a part of the time twice"),
        ({"at": "%Y-%m-%d %I"}, "%I and %p"),
        ({"n": "seconds"}, "expected columns declared as timestamp, found 'n'"),
    ],
)
def test_a_form_that_is_none_is_refused(times: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TableSpec.model_validate({"columns": {"at": "timestamp", "n": "int64"}, "times": times})
