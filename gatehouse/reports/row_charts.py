"""Charts of rows, a bar or a dot beside each name: as wide as the page lets them, with text of one size everywhere."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gatehouse.reports.axes import GLYPH, axis_limits, number_ticks
from gatehouse.reports.charts import with_legend
from gatehouse.reports.format import Html, column_format, escape

Row = tuple[str, str, str]
Place = Callable[[float], str]

_NARROW = 200  # Pixels that the drawing has on a phone, where names above markers must keep off each other.


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart: a value, its interval, and another value to compare with, each left out where NaN."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    other: float = math.nan
    mark: str = ""


def bar_chart(
    bars: Sequence[tuple[str, float]],
    marker: float | None = None,
    marker_name: str = "",
    bad: Collection[str] = (),
) -> Html:
    """Horizontal bars from zero with their values, and optionally a dashed line at `marker`.

    Args:
        bars: Name and value; values that are not finite have no bar.
        marker: A value to compare with.
        marker_name: What the marker is, written above it.
        bad: Names of bars that stand for what went wrong.
    """
    marks = [(marker_name, marker)] if marker is not None and math.isfinite(marker) else []
    spanned = [0.0, *(value for _, value in [*bars, *marks] if math.isfinite(value))]
    low, high = min(spanned), max(spanned)
    x, write = _placed(low, high if high > low else low + 1.0), column_format(value for _, value in bars)
    axis = f'<line class="axis" {_down(x(0.0))}/>'
    rows = [
        (
            name,
            _across("bar bad" if name in bad else "bar", x(0.0), x(value if math.isfinite(value) else 0.0)) + axis,
            write(value),
        )
        for name, value in bars
    ]
    return _chart("Bars", rows, x, marks)


def dot_chart(
    dots: Sequence[Dot], x: str, markers: Sequence[tuple[str, float]] = (), names: Sequence[str] = ()
) -> Html:
    """One row a dot: where bars from zero would hide differences that matter.

    Args:
        dots: The rows, from the top; `mark` is empty, `bad`, or `soft` for rows that count less.
        x: Label of the axis. It spans all values, and the intervals of the rows that count; others are cut off.
        markers: Name and value of dashed vertical lines.
        names: What the full and the hollow dots are; empty for no legend.
    """
    marks = [(name, value) for name, value in markers if math.isfinite(value)]
    spanned = [value for dot in dots for value in (dot.value, dot.other)]
    spanned += [value for dot in dots if dot.mark != "soft" for value in (dot.low, dot.high)]
    low, high = axis_limits([one for one in [*spanned, *(one for _, one in marks)] if math.isfinite(one)], None)
    place, write = _placed(low, high), column_format(dot.value for dot in dots if math.isfinite(dot.value))
    ticks = number_ticks(low, high, 4)
    grid = "".join(f'<line class="grid" {_down(place(tick))}/>' for tick, _ in ticks)
    rows = [(dot.name, grid + _dot(dot, place), write(dot.value) if math.isfinite(dot.value) else "–") for dot in dots]
    labels = "".join(f'<text x="{place(tick)}" y="14" text-anchor="middle">{label}</text>' for tick, label in ticks)
    title = f'<text class="label" x="50%" y="14" text-anchor="middle">{escape(x)}</text>'
    chart = _chart(x, rows, place, marks, _row("", labels, "") + _row("", title, ""))
    return with_legend(chart, list(zip(names, ("f0", "hollow s1"), strict=False)))


def _dot(dot: Dot, place: Place) -> str:
    style = {"bad": "f-bad", "soft": "f-soft"}.get(dot.mark, "f0")
    stroke = {"bad": "l-bad", "soft": "ref"}.get(dot.mark, "s0")
    parts = []
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        parts.append(_across(f"range {stroke}", place(dot.low), place(dot.high)))
    if math.isfinite(dot.other):
        parts.append(f'<circle class="hollow s1" cx="{place(dot.other)}" cy="50%" r="3.5"/>')
    if math.isfinite(dot.value):
        parts.append(f'<circle class="{style}" cx="{place(dot.value)}" cy="50%" r="4.5"/>')
    return "".join(parts)


def _chart(label: str, rows: Sequence[Row], place: Place, marks: Sequence[tuple[str, float]], axis: str = "") -> Html:
    """Names, drawings and values below each other, under the names of the markers."""
    lines = "".join(f'<line class="ref dashed" {_down(place(value))}/>' for _, value in marks)
    head = _row("", _marker_names(place, marks), "") if any(name for name, _ in marks) else ""
    drawn = "".join(_row(name, lines + drawing, value) for name, drawing, value in rows)
    return Html(f'<div class="rows" role="group" aria-label="{escape(label)}">{head}{drawn}{axis}</div>')


def _row(name: str, drawing: str, value: str) -> str:
    lane = f'<svg xmlns="http://www.w3.org/2000/svg" class="lane" aria-hidden="true">{drawing}</svg>'
    # A long name of several words joined by underscores breaks after one of these.
    shown = escape(name).replace("_", "_<wbr/>")
    return f'<div class="row"><span class="name">{shown}</span>{lane}<span class="value">{escape(value)}</span></div>'


def _marker_names(place: Place, marks: Sequence[tuple[str, float]]) -> str:
    """Names of markers; where two are close, they give way to both sides."""
    placed = sorted((float(place(value)[:-1]), name) for name, value in marks)
    anchors = ["middle"] * len(placed)
    for at in range(1, len(placed)):
        room = (len(placed[at - 1][1]) + len(placed[at][1])) * GLYPH / 2 + 8
        if (placed[at][0] - placed[at - 1][0]) / 100 * _NARROW < room:
            anchors[at - 1 : at + 1] = ["end", "start"]
    return "".join(
        f'<text x="{at:.2f}%" y="14" text-anchor="{anchor}">{escape(name)}</text>'
        for (at, name), anchor in zip(placed, anchors, strict=True)
    )


def _placed(low: float, high: float) -> Place:
    """The place of a number between the ends of an axis, from 0 to 100 %; a number beyond an end is put at that end."""
    return lambda value: f"{100 * min(1.0, max(0.0, (value - low) / (high - low))):.2f}%"


def _across(style: str, start: str, end: str) -> str:
    return f'<line class="{style}" x1="{start}" y1="50%" x2="{end}" y2="50%"/>'


def _down(at: str) -> str:
    return f'x1="{at}" y1="0" x2="{at}" y2="100%"'
