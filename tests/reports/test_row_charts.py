"""Bars and dots stand where their values are, in per cent of the page's width, and never break on odd numbers."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.row_charts import Dot, bar_chart, dot_chart

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-12])


def lines(chart: str, mark: str) -> list[tuple[float, float]]:
    """Where the lines of a class begin and end, in per cent."""
    found = [each for each in ET.fromstring(chart).iter(f"{SVG}line") if mark in (each.get("class") or "").split()]
    return [tuple(float((each.get(end) or "").rstrip("%")) for end in ("x1", "x2")) for each in found]  # type: ignore[misc]


def within(chart: str) -> bool:
    """Whether the chart is well-formed and draws nothing beside its lanes."""
    ET.fromstring(chart)
    return all(0 <= float(place) <= 100 for place in re.findall(r'(?:x|x1|x2|cx)="([^"]*)%"', chart))


@given(st.lists(NUMBERS, max_size=8), st.none() | NUMBERS)
def test_bars_survive_odd_numbers(values: list[float], marker: float | None) -> None:
    assert within(bar_chart([("a", value) for value in values], marker))


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, NUMBERS), max_size=6), NUMBERS)
def test_dots_survive_odd_numbers(values: list[tuple[float, float, float, float]], marker: float) -> None:
    assert within(dot_chart([Dot("a", *value) for value in values], "x", [("m", marker), ("n", 0.0)]))


def test_bars_are_as_long_as_their_values() -> None:
    bars = lines(bar_chart([("a", 1.0), ("b", 2.0), ("c", -1.0), ("d", math.nan)]), "bar")
    zero = bars[0][0]
    assert [end - zero for _, end in bars] == pytest.approx([100 / 3, 200 / 3, -100 / 3, 0], abs=0.02)
    assert {start for start, _ in bars} == {zero}


def test_a_marker_stands_at_its_value_and_has_its_name() -> None:
    chart = bar_chart([("a", 1.0), ("b", 4.0)], marker=1.0, marker_name="limit")
    assert lines(chart, "dashed") == [(25.0, 25.0)] * 2
    assert lines(chart, "bar")[0] == (0.0, 25.0)
    assert re.findall(r'<text x="([\d.]+)%"[^>]*>limit<', chart) == ["25.00"]


def test_an_interval_of_a_row_that_counts_less_is_cut_off() -> None:
    first, second = lines(dot_chart([Dot("a", 0.7, 0.69, 0.71), Dot("b", 0.7, -5.0, 5.0, mark="soft")], "x"), "range")
    assert second == (0, 100)
    assert first[1] - first[0] > 50


def test_names_and_values_are_text_beside_each_bar() -> None:
    chart = bar_chart([("a_long<name>", 0.5), ("b", 0.25)])
    rows = [[span.text for span in row.iter("span")] for row in ET.fromstring(chart)]
    assert [row[-1] for row in rows] == ["0.5000", "0.2500"]
    assert "a_<wbr/>long&lt;name&gt;" in chart


def test_names_of_close_markers_give_way() -> None:
    chart = dot_chart([Dot("a", 0.0), Dot("b", 100.0)], "x", [("floor", 50.0), ("all rows", 50.5)])
    anchors = {each.text: each.get("text-anchor") for each in ET.fromstring(chart).iter(f"{SVG}text")}
    assert (anchors["floor"], anchors["all rows"]) == ("end", "start")
