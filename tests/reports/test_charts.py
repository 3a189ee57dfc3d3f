"""Charts draw what they are given, at the right place, and never break on odd numbers."""

import math
import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.axes import Axis, Frame, drawn_axes, time_ticks
from gatehouse.reports.charts import Bin, Series, distributions, histogram, line_chart, sparkline
from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-12])
POINTS = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8)


def elements(chart: str, tag: str, mark: str) -> list[ET.Element]:
    """Elements of a chart by tag and a word of their class."""
    return [element for element in ET.fromstring(chart).iter(SVG + tag) if mark in (element.get("class") or "").split()]


def texts(chart: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(chart).iter(SVG + "text")]


def path_points(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", path.get("d") or "")]


def dots(chart: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"M([\d.-]+),([\d.-]+)h0", chart)]


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


def test_a_logarithm_puts_equal_ratios_at_equal_distances() -> None:
    series = Series("", dots=[(0.001, 1), (0.01, 1), (0.1, 1)])
    chart = line_chart([series], Axis("rate", 0.001, 0.1, log=True), Axis("loss", 0, 2))
    (a, _), (b, _), (c, _) = dots(chart)
    assert b - a == pytest.approx(c - b, abs=1)
    assert re.findall(r">(0\.0?0?1)<", chart) == ["0.001", "0.01", "0.1"]


@pytest.mark.parametrize(
    ("ends", "log", "labels"),
    [
        ((3, 5), False, ["3", "4", "5"]),
        ((3, 5), True, ["3", "4", "5"]),
        ((1, 64), True, ["1", "2", "5", "10", "20", "50"]),
        ((0, 1), False, ["0", "1"]),
    ],
)
def test_whole_numbers_have_whole_ticks(ends: tuple[int, int], log: bool, labels: list[str]) -> None:
    axis = Axis.of("layers", ends, log, whole=True)
    assert [label for _, label in axis.ticks(*axis.ends)] == labels


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


def test_labels_of_an_axis_do_not_overlap() -> None:
    frame = Frame(60, 10, 130, 200, at("2013-11-15"), at("2013-12-14"), 0, 1)
    drawn = "".join(drawn_axes(frame, "began", "seconds", time_ticks))
    assert len(re.findall(r">2013-", drawn)) == 1
    chart = line_chart([Series("a", [(0, 0.7301), (1, 0.7374)])], "x", "y")
    (left, label), *_ = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">([\d.]+)</text>', chart)
    assert float(left) - 6.7 * len(label) > 20, "the name of the axis stands there"


def test_a_histogram_is_as_high_as_its_bins() -> None:
    (outline,) = elements(histogram([0, 1, 2], [("a", [1, 2])], "x", "y"), "path", "series")
    heights = [y for _, y in path_points(outline)]
    assert heights[-1] == heights[0]
    assert heights[0] - heights[3] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.2)
    with pytest.raises(ValueError, match="zip"):
        histogram([0, 1, 2], [("b", [1])], "x", "y")


def steps(path: ET.Element) -> list[tuple[str, float]]:
    """The moves of an outline: `M`, `V` or `H`, with where they lead (of `M` the height)."""
    moves = re.findall(r"([MVH])([\d.,-]+)", path.get("d") or "")
    return [(move, float(place.split(",")[-1])) for move, place in moves]


def test_a_distribution_is_filled_and_another_lies_over_it() -> None:
    bins = [Bin(0, 1, 0.25), Bin(1, 3, 0.5)]
    chart = distributions([("now", bins), ("before", bins)], "a column", (0, 4), size=(212, 100))
    (own,) = elements(chart, "path", "own")
    other, key = elements(chart, "path", "other")
    assert own.get("d") == other.get("d") != key.get("d")
    floor, low, first, high, second, end = (place for _, place in steps(own))
    assert floor == end == 80
    assert floor - high == pytest.approx(2 * (floor - low), abs=1)
    assert (first, second) == (6 + 50, 6 + 150)
    assert {"now", "before"} <= set(texts(chart))
    alone = distributions([("now", bins)], "x", (0, 1), ends=("2024-01-01", "<2024>"))
    assert texts(alone) == ["2024-01-01", "<2024>"] and not elements(alone, "path", "other")


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


def test_a_marker_stands_at_its_value_and_names_of_close_markers_move_apart() -> None:
    chart = bar_chart([("a", 1.0), ("b", 4.0)], [("limit", 1.0)])
    assert row_lines(chart, "dashed") == [(25.0, 25.0)] * 2
    assert re.findall(r'<text x="([\d.]+)%"[^>]*>limit<', chart) == ["25.00"]
    chart = dot_chart([Dot("a", 0.0), Dot("b", 100.0)], "x", [("floor", 50.0), ("all rows", 50.5)])
    anchors = {text.text: text.get("text-anchor") for text in ET.fromstring(chart).iter(f"{SVG}text")}
    assert (anchors["floor"], anchors["all rows"]) == ("end", "start")
