"""Charts draw what they are given, at the right place, and never break on odd numbers."""

import math
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.charts import (
    Axis,
    Bin,
    Dot,
    Series,
    bar_chart,
    distributions,
    dot_chart,
    histogram,
    line_chart,
    sparkline,
    time_ticks,
)

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-12])
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8)


def elements(chart: str, tag: str, mark: str) -> list[ET.Element]:
    """Elements of a chart by tag and a word of their class."""
    return [element for element in ET.fromstring(chart).iter(SVG + tag) if mark in (element.get("class") or "").split()]


def path_points(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", path.get("d") or "")]


def is_finite(chart: str) -> bool:
    """Whether the chart is well-formed, and all coordinates are finite and within their lanes."""
    ET.fromstring(chart)
    numbers = re.findall(r'(?:x|y|x1|x2|y1|y2|cx|cy|r|width|height|points|d)="([^"]*)"', chart)
    places = [float(place) for place in re.findall(r'(?:x|x1|x2|cx)="([^"]*)%"', chart)]
    return not any("nan" in number or "inf" in number for number in numbers) and all(0 <= x <= 100 for x in places)


def test_a_line_runs_from_corner_to_corner() -> None:
    chart = line_chart([Series("a", [(0, 0), (1, 1)])], Axis("x"), Axis("y"), size=(400, 300))
    (line,) = map(path_points, elements(chart, "path", "series"))
    assert line[0][0] < line[1][0] and line[0][1] > line[1][1]
    assert elements(chart, "line", "axis")[0].get("y1") == f"{line[0][1]:.1f}"


@given(POINTS, st.booleans())
def test_line_charts_survive_odd_numbers(points: list[tuple[float, float]], log: bool) -> None:
    x, y = (Axis.of("a", [point[index] for point in points], log) for index in (0, 1))
    assert is_finite(line_chart([Series("a", points, lines=[points], dots=points)], x, y))
    assert is_finite(line_chart([Series("a", points)], "x", "y"))


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        ("2013-01-01T20:00", "2013-01-02T04:00", ["2013-01-01 21:00", "2013-01-02", "03:00"]),
        ("2013-01-01T05:10", "2013-01-01T08:50", ["2013-01-01 06:00", "07:00", "08:00"]),
        ("2013-01-30T12:00", "2013-02-03T12:00", ["2013-01-31", "2013-02-01", "2013-02-02", "2013-02-03"]),
        ("2013-01-02", "2013-12-31", ["2013-04", "2013-07", "2013-10"]),
        ("1880-01-01", "2020-01-01", ["1900", "1950", "2000"]),
    ],
)
def test_times_have_round_ticks(low: str, high: str, labels: list[str]) -> None:
    assert [label for _, label in time_ticks(at(low), at(high))] == labels


def test_a_histogram_is_as_high_as_its_bins() -> None:
    (outline,) = elements(histogram([0, 1, 2], [("a", [1, 2])], "x", "y"), "path", "series")
    heights = [y for _, y in path_points(outline)]
    assert heights[-1] == heights[0]
    assert heights[0] - heights[3] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.2)
    with pytest.raises(ValueError, match="zip"):
        histogram([0, 1, 2], [("b", [1])], "x", "y")


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0.001, 1e6), st.floats(0, 1e9)), max_size=6))
def test_distributions_survive_odd_numbers(values: list[tuple[float, float, float]]) -> None:
    bins = [Bin(low, low + width, height) for low, width, height in values]
    limits = (min((part.low for part in bins), default=0.0), max((part.high for part in bins), default=1.0))
    assert is_finite(distributions([("a", bins), ("b", bins)], "x", limits))
    assert is_finite(sparkline(bins, limits))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=6), NUMBERS)
def test_charts_of_rows_survive_odd_numbers(values: list[tuple[float, float, float, float]], marker: float) -> None:
    assert is_finite(bar_chart([("a", value[0]) for value in values], [("m", marker)]))
    assert is_finite(dot_chart([Dot("a", *value) for value in values], "x", [("m", marker), ("n", 0.0)]))


def row_lines(chart: str, mark: str) -> list[tuple[float, float]]:
    """Where the lines of a class begin and end, in per cent."""
    ends = [(line.get("x1") or "", line.get("x2") or "") for line in elements(chart, "line", mark)]
    return [(float(start.rstrip("%")), float(end.rstrip("%"))) for start, end in ends]


def test_bars_are_as_long_as_their_values() -> None:
    bars = row_lines(bar_chart([("a", 1.0), ("b", 2.0), ("c", -1.0), ("d", math.nan)]), "bar")
    zero = bars[0][0]
    assert [end - zero for _, end in bars] == pytest.approx([100 / 3, 200 / 3, -100 / 3, 0], abs=0.02)
    assert {start for start, _ in bars} == {zero}
