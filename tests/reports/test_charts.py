"""Charts draw what they are given, at the right place, and never break on odd numbers."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.charts import Bin, Series, distributions, histogram, line_chart, sparkline

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-12])


def drawn(svg: str, tag: str, mark: str) -> list[ET.Element]:
    """Elements of a chart by tag and a word of their class."""
    return [each for each in ET.fromstring(svg).iter(SVG + tag) if mark in (each.get("class") or "").split()]


def texts(svg: str) -> list[str]:
    return [each.text or "" for each in ET.fromstring(svg).iter(SVG + "text")]


def points(svg: str) -> list[list[tuple[float, float]]]:
    lines = drawn(svg, "polyline", "series")
    return [
        [tuple(map(float, pair.split(","))) for pair in (line.get("points") or "").split()]  # type: ignore[misc]
        for line in lines
    ]


def finite(svg: str) -> bool:
    """Whether the chart is well-formed and holds only finite numbers as coordinates."""
    ET.fromstring(svg)
    numbers = re.findall(r'(?:x|y|x1|x2|y1|y2|cx|cy|r|width|height|points|d)="([^"]*)"', svg)
    return not any("nan" in number or "inf" in number for number in numbers)


def test_a_line_runs_from_corner_to_corner() -> None:
    svg = line_chart([Series("a", [(0, 0), (1, 1)])], "x", "y", (0, 1), (0, 1), (400, 300))
    (line,) = points(svg)
    assert line[0][0] < line[1][0]
    assert line[0][1] > line[1][1]
    assert drawn(svg, "line", "axis")[0].get("y1") == f"{line[0][1]:.1f}"


def test_series_differ_and_the_first_is_on_top() -> None:
    svg = line_chart(
        [Series("a", [(0, 0), (1, 1)]), Series("b", [(0, 1), (1, 0)]), Series("r", [(0, 0)], True)], "x", "y"
    )
    order = [each.get("class") for each in ET.fromstring(svg).iter(SVG + "polyline")]
    assert order == ["series ref dashed", "series s1", "series s0"]
    assert {"x", "y"} <= set(texts(svg))
    assert [each.tail for each in ET.fromstring(svg).iter("svg")] == ["a", "b", "r"]


def test_points_that_are_not_finite_are_left_out() -> None:
    svg = line_chart([Series("a", [(0, 0), (math.nan, 1), (1, math.inf), (1, 1)])], "x", "y")
    assert len(points(svg)[0]) == 2


def test_a_single_point_is_a_dot() -> None:
    assert len(drawn(line_chart([Series("a", [(1, 1)])], "x", "y"), "circle", "f0")) == 1


@pytest.mark.parametrize("series", [[], [Series("a", [])], [Series("a", [(math.nan, math.nan)])]])
def test_a_chart_of_nothing_says_so(series: list[Series]) -> None:
    assert "no data" in texts(line_chart(series, "x", "y"))


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8))
def test_lines_survive_odd_numbers(values: list[tuple[float, float]]) -> None:
    assert finite(line_chart([Series("a", values, marked=True)], "x", "y"))


def test_a_histogram_is_as_high_as_its_bins() -> None:
    svg = histogram([0, 1, 2], [("a", [1, 2])], "x", "y")
    (outline,) = drawn(svg, "path", "series")
    heights = [float(pair.split(",")[1]) for pair in re.split("[ML]", outline.get("d") or "")[1:]]
    floor = heights[0]
    assert heights[-1] == floor
    assert floor - heights[3] == pytest.approx(2 * (floor - heights[1]), abs=0.2)


def test_a_histogram_wants_one_height_a_bin() -> None:
    with pytest.raises(ValueError, match="expected 2 heights, found another number in b"):
        histogram([0, 1, 2], [("a", [1, 2]), ("b", [1])], "x", "y")


def steps(path: ET.Element) -> list[tuple[str, float]]:
    """The moves of an outline: `M`, `V` or `H`, with where they lead (of `M` the height)."""
    moves = re.findall(r"([MVH])([\d.,-]+)", path.get("d") or "")
    return [(move, float(place.split(",")[-1])) for move, place in moves]


def test_a_distribution_is_filled_and_another_lies_over_it() -> None:
    bins = [Bin(0, 1, 0.25), Bin(1, 3, 0.5)]
    svg = distributions([("now", bins), ("before", bins)], "a column", (0, 4), size=(212, 100))
    (own,) = drawn(svg, "path", "own")
    other, key = drawn(svg, "path", "other")
    assert own.get("d") == other.get("d") != key.get("d")
    floor, low, first, high, second, end = (place for _, place in steps(own))
    assert floor == end == 80
    assert floor - high == pytest.approx(2 * (floor - low), abs=1)
    assert (first, second) == (6 + 50, 6 + 150)
    assert {"now", "before"} <= set(texts(svg))
    assert ET.fromstring(svg).get("aria-label") == "a column"


def test_one_distribution_alone_needs_no_legend_and_may_name_its_ends() -> None:
    svg = distributions([("now", [Bin(0, 1, 1.0)])], "x", (0, 1), ends=("2024-01-01", "<2024>"))
    assert texts(svg) == ["2024-01-01", "<2024>"]
    assert drawn(svg, "path", "other") == []


def test_bins_are_cut_off_at_the_ends_of_the_axis() -> None:
    bins = [Bin(-10, -5, 1.0), Bin(-5, 0.5, 1.0), Bin(0.5, 9, 1.0), Bin(9, 10, 1.0)]
    svg = distributions([("now", bins)], "x", (0, 1), size=(112, 100))
    across = [place for move, place in steps(drawn(svg, "path", "own")[0]) if move == "H"]
    assert across == [56, 106]
    assert steps(drawn(distributions([("now", bins)], "x", (20, 30)), "path", "own")[0]) == []


@given(st.lists(st.tuples(st.floats(-1e9, 1e9), st.floats(0.001, 1e6), st.floats(0, 1e9)), max_size=6))
def test_distributions_survive_odd_numbers(values: list[tuple[float, float, float]]) -> None:
    bins = [Bin(low, low + width, height) for low, width, height in values]
    limits = (min((one.low for one in bins), default=0.0), max((one.high for one in bins), default=1.0))
    svg = distributions([("a", bins), ("b", bins)], "x", limits)
    assert finite(svg)
    assert finite(sparkline(bins, limits))
