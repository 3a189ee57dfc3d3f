"""Dots and lines stand where their numbers are, on axes of numbers, of logarithms and of categories."""

import math
import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.reports.contours import contours
from gatehouse.reports.parallel import Bundle, parallel
from gatehouse.reports.plots import Axis, Layer, plot

NUMBERS = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e-12])


def dots(chart: str) -> list[tuple[float, float]]:
    """Where dots stand, in pixels."""
    return [(float(x), float(y)) for x, y in re.findall(r"M([\d.-]+),([\d.-]+)h0", chart)]


@given(st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8), st.booleans())
def test_plots_survive_odd_numbers(points: list[tuple[float, float]], log: bool) -> None:
    x, y = (Axis.of("a", [point[at] for point in points], log) for at in (0, 1))
    chart = plot([Layer("all", "s0", points, lines=[points])], x, y)
    ET.fromstring(chart)
    assert "nan" not in chart


def test_a_logarithm_puts_equal_ratios_at_equal_distances() -> None:
    chart = plot(
        [Layer("", "s0", [(0.001, 1), (0.01, 1), (0.1, 1)])], Axis("rate", 0.001, 0.1, True), Axis("loss", 0, 2)
    )
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


def test_ticks_of_very_small_and_large_ratios_are_powers_of_ten() -> None:
    axis = Axis.of("penalty", [1e-7, 1e7], log=True)
    assert [label for _, label in axis.ticks(*axis.ends)] == ["10⁻⁷", "0.0001", "0.1", "100", "100000"]


def test_categories_stand_beside_each_other_under_their_names() -> None:
    names = ("relu", "gelu <b>", "a name that is too long for an axis")
    chart = plot([Layer("", "s0", [(0, 1), (1, 1), (2, 1)])], Axis("activation", choices=names), Axis("loss", 0, 2))
    labels = {
        each.text: float(each.get("x", "0")) for each in ET.fromstring(chart).iter("{http://www.w3.org/2000/svg}text")
    }
    assert [x for x, _ in dots(chart)] == pytest.approx(
        [labels["relu"], labels["gelu <b>"], labels["a name that is …"]], abs=1
    )


def test_dots_on_one_pixel_are_one_and_few_say_what_they_are() -> None:
    x, y = Axis("x", 0, 1), Axis("y", 0, 1)
    assert len(dots(plot([Layer("", "s0", [(0.5, 0.5)] * 1000)], x, y))) == 1
    assert "<title>trial 7</title>" in plot([Layer("", "s0", [(0.5, 0.5)], ["trial 7"])], x, y)


def test_contours_are_darkest_where_values_are_best() -> None:
    points = [(a / 9, b / 9, a / 9) for a in range(10) for b in range(10)]
    for minimize, wanted in ((True, 0), (False, 1)):
        chart = contours(points, Axis("a"), Axis("b"), "loss", (0.0, 0.0), minimize)
        shades = {
            float(strength): re.findall(r"M([\d.]+),", path)
            for strength, path in re.findall(r'fill-opacity="([\d.]+)" d="([^"]*)"', chart)
        }
        at = [float(x) for x in shades[max(shades)]]
        assert (sum(at) / len(at) > 250) == bool(wanted)


def test_parallel_lines_go_below_the_axes_of_what_they_lack() -> None:
    axes = [Axis("model.depth", 0, 10), Axis("loss", 0, 1)]
    chart = parallel(axes, [Bundle("trials", "s0", [[0.0, 0.5], [None, 0.5]])])
    ET.fromstring(chart)
    heights = [float(path.split(",")[1].split("L")[0]) for path in re.findall(r"M[\d.]+,[\d.]+L", chart)]
    assert heights[1] > heights[0] + 20
    assert chart.count("not set") == 1
