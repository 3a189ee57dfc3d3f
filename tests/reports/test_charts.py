"""Charts draw what they are given, at the right place, and never break on odd numbers."""

import re
import xml.etree.ElementTree as ET
from datetime import UTC, datetime

import pytest

from gatehouse.reports.charts import (
    Axis,
    Series,
    histogram,
    line_chart,
)

SVG = "{http://www.w3.org/2000/svg}"


def elements(chart: str, tag: str, mark: str) -> list[ET.Element]:
    """Elements of a chart by tag and a word of their class."""
    return [element for element in ET.fromstring(chart).iter(SVG + tag) if mark in (element.get("class") or "").split()]


def path_points(path: ET.Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.-]+),([\d.-]+)", path.get("d") or "")]


def test_a_line_runs_from_corner_to_corner() -> None:
    chart = line_chart([Series("a", [(0, 0), (1, 1)])], Axis("x"), Axis("y"), size=(400, 300))
    (line,) = map(path_points, elements(chart, "path", "series"))
    assert line[0][0] < line[1][0] and line[0][1] > line[1][1]
    assert elements(chart, "line", "axis")[0].get("y1") == f"{line[0][1]:.1f}"


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def test_a_histogram_is_as_high_as_its_bins() -> None:
    (outline,) = elements(histogram([0, 1, 2], [("a", [1, 2])], "x", "y"), "path", "series")
    heights = [y for _, y in path_points(outline)]
    assert heights[-1] == heights[0]
    assert heights[0] - heights[3] == pytest.approx(2 * (heights[0] - heights[1]), abs=0.2)
    with pytest.raises(ValueError, match="zip"):
        histogram([0, 1, 2], [("b", [1])], "x", "y")
