"""Windows of a backfill: how they are cut, named and given to runs."""

import datetime as dt
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.project.windows import windows_of


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("2013-01-01/2013-03-01", ["20130101-20130301"]),
        ("2013-01-01/2013-03-01/P1M", ["20130101-20130201", "20130201-20130301"]),
        (
            "2013-11-30/2014-03-01/P1M",
            ["20131130-20131230", "20131230-20140130", "20140130-20140228", "20140228-20140301"],
        ),
        ("2013-01-01/2013-01-10/P1W", ["20130101-20130108", "20130108-20130110"]),
        ("2013-01-03/2013-01-04,2013-01-01/2013-01-02", ["20130101-20130102", "20130103-20130104"]),
        ("2013-01-01T00:00:00+01:00/2013-01-01T12:00/PT13H", ["20121231T2300-20130101T1200"]),
        (
            "2024-05-01T00:00+02:00/2024-08-01T00:00+02:00/P1M",
            ["20240430T2200-20240531T2200", "20240531T2200-20240630T2200", "20240630T2200-20240731T2200"],
        ),
    ],
)
def test_windows_are_cut_in_order_and_named(text: str, names: list[str]) -> None:
    assert [window.name for window in windows_of(text)] == names


@given(
    st.datetimes(dt.datetime(2000, 1, 1), dt.datetime(2020, 1, 1)),
    st.integers(1, 900),
    st.sampled_from(["P1M", "P2M", "P1W", "P3D", "PT36H"]),
)
def test_windows_cover_the_whole_without_holes(start: dt.datetime, days: int, step: str) -> None:
    end = start + dt.timedelta(days=days)
    result = windows_of(f"{start.isoformat()}/{end.isoformat()}/{step}")
    assert (result[0].start, result[-1].end) == (start.replace(tzinfo=dt.UTC), end.replace(tzinfo=dt.UTC))
    assert all(before.end == after.start for before, after in itertools.pairwise(result))
    assert all(window.start < window.end for window in result)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "START/END"),
        ("2013-01-01/2013-02-01/P0D", "expected a step of at least one month P1M.* found '.*P0D'"),
        ("yesterday/2013-02-01", "yesterday"),
        ("2013-02-01/2013-01-01", "a start before its end"),
        ("2013-01-01/2013-02-01,2013-01-31/2013-03-01", "do not overlap"),
        ("2013-01-01/2014-01-01/PT1H", "at most 1,000 windows"),
        ("2024-03-01T00:00+01:00/2024-06-01T00:00+02:00/P1M", "one offset"),
    ],
)
def test_what_names_no_windows_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        windows_of(text)
