"""Ticks stand on round numbers and round times, and few enough to be read."""

import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.axes import Frame, drawn_axes, time_ticks
from gatehouse.reports.charts import Series, histogram, line_chart

FIRST, LAST = datetime(2, 1, 1, tzinfo=UTC).timestamp(), datetime(9990, 1, 1, tzinfo=UTC).timestamp()


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        ("2013-01-01T20:00", "2013-01-02T04:00", ["2013-01-01 21:00", "2013-01-02", "03:00"]),
        ("2013-01-01T05:10", "2013-01-01T08:50", ["2013-01-01 06:00", "07:00", "08:00"]),
        ("2013-01-30T12:00", "2013-02-03T12:00", ["2013-01-31", "2013-02-01", "2013-02-02", "2013-02-03"]),
        ("2013-01-02", "2013-12-31", ["2013-04", "2013-07", "2013-10"]),
        ("2011-06-01", "2015-06-01", ["2012", "2013", "2014", "2015"]),
        ("1880-01-01", "2020-01-01", ["1900", "1950", "2000"]),
    ],
)
def test_times_have_round_ticks(low: str, high: str, labels: list[str]) -> None:
    found = time_ticks(at(low), at(high))
    assert [label for _, label in found] == labels
    assert all(at(low) <= value <= at(high) for value, _ in found)


@given(st.floats(FIRST, LAST), st.floats(1e-3, 1e11))
def test_there_are_never_more_dates_than_fit(low: float, span: float) -> None:
    assert len(time_ticks(low, min(LAST, low + span))) <= 6


def test_long_labels_keep_off_the_name_of_their_axis() -> None:
    svg = line_chart([Series("a", [(0, 0.7301), (1, 0.7374)])], "x", "y")
    (at, label), *_ = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([\d.]+)</text>', svg)
    assert float(at) - 6.7 * len(label) > 20


def test_a_date_at_the_right_edge_is_not_cut_off() -> None:
    edges = [at("2013-01-01"), at("2014-01-02")]
    svg = histogram(edges, [("a", [1])], "decision", "share", times=True)
    assert re.findall(r'text-anchor="(\w+)">(20\d\d-\d\d)<', svg) == [
        ("middle", "2013-01"),
        *(("middle", f"2013-{month}") for month in ("04", "07", "10")),
        ("end", "2014-01"),
    ]


def test_charts_over_time_say_dates() -> None:
    edges = [at("2013-01-01"), at("2013-06-01"), at("2013-12-01")]
    for svg in (
        histogram(edges, [("a", [1, 2])], "decision", "share", times=True),
        line_chart([Series("a", [(edge, 1.0) for edge in edges])], "decision", "share", times=True),
    ):
        assert "2013-04</text>" in svg


def test_labels_of_an_axis_do_not_stand_on_each_other() -> None:
    frame = Frame(60, 10, 300, 200, at("2013-11-15T00:00"), at("2013-12-14T06:00"), 0, 1)
    drawn = "".join(drawn_axes(frame, "began", "seconds", time_ticks))
    assert "2013-12-05" in drawn and "2013-12-12" not in drawn
