"""Charts of rows, a bar or a dot beside each name, as wide as the page; their text has one size everywhere."""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from gatehouse.reports.axes import GLYPH, axis_limits, number_ticks
from gatehouse.reports.charts import with_legend
from gatehouse.reports.format import column_format

Place = Callable[[float], str]

_NARROW = 200  # Width of the drawing on a phone in pixels, where the names of markers must not overlap.


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart: a value, its interval, and another value to compare with; NaN leaves any of them out."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    other: float = math.nan
    mark: str = ""


def bar_chart(
    bars: Sequence[tuple[str, float]], markers: Sequence[tuple[str, float]] = (), bad: Collection[str] = ()
) -> Markup:
    """Horizontal bars from zero with their values."""
    markers = [(name, value) for name, value in markers if math.isfinite(value)]
    spanned = [0.0, *(value for _, value in [*bars, *markers] if math.isfinite(value))]
    low, high = min(spanned), max(spanned)
    place, write = _scale(low, high if high > low else low + 1.0), column_format(value for _, value in bars)
    rows = []
    for name, value in bars:
        end = place(value if math.isfinite(value) else 0.0)
        bar = _across("bar bad" if name in bad else "bar", place(0.0), end)
        rows.append((name, f'{bar}<line class="axis" {_down(place(0.0))}/>', write(value)))
    return _chart("Bars", rows, place, markers)


def dot_chart(
    dots: Sequence[Dot], x: str, markers: Sequence[tuple[str, float]] = (), names: Sequence[str] = ()
) -> Markup:
    """One row per dot, for values whose differences are small beside their distance from zero.

    The axis `x` spans all values, and the intervals of rows that are not `soft` (count less).
    """
    markers = [(name, value) for name, value in markers if math.isfinite(value)]
    spanned = [value for dot in dots for value in (dot.value, dot.other)] + [value for _, value in markers]
    spanned += [value for dot in dots if dot.mark != "soft" for value in (dot.low, dot.high)]
    low, high = axis_limits([value for value in spanned if math.isfinite(value)])
    place, write = _scale(low, high), column_format(dot.value for dot in dots if math.isfinite(dot.value))
    ticks = number_ticks(low, high, 4)
    grid = "".join(f'<line class="grid" {_down(place(tick))}/>' for tick, _ in ticks)
    rows = []
    for dot in dots:
        drawn = grid
        if math.isfinite(dot.low) and math.isfinite(dot.high):
            stroke = {"bad": "l-bad", "soft": "ref"}.get(dot.mark, "s0")
            drawn += _across(f"range {stroke}", place(dot.low), place(dot.high))
        if math.isfinite(dot.other):
            drawn += f'<circle class="hollow s1" cx="{place(dot.other)}" cy="50%" r="3.5"/>'
        if math.isfinite(dot.value):
            fill = {"bad": "f-bad", "soft": "f-soft"}.get(dot.mark, "f0")
            drawn += f'<circle class="{fill}" cx="{place(dot.value)}" cy="50%" r="4.5"/>'
        rows.append((dot.name, drawn, write(dot.value) if math.isfinite(dot.value) else "–"))
    labels = "".join(f'<text x="{place(tick)}" y="14" text-anchor="middle">{label}</text>' for tick, label in ticks)
    title = f'<text class="label" x="50%" y="14" text-anchor="middle">{escape(x)}</text>'
    chart = _chart(x, rows, place, markers, _row("", labels, "") + _row("", title, ""))
    return with_legend(chart, list(zip(names, ("f0", "hollow s1"), strict=False)))


def _chart(
    label: str,
    rows: Sequence[tuple[str, str, str]],
    place: Place,
    markers: Sequence[tuple[str, float]],
    axis: str = "",
) -> Markup:
    """Rows of name, drawing and value, below the names of the markers."""
    lines = "".join(f'<line class="ref dashed" {_down(place(value))}/>' for _, value in markers)
    names = sorted((float(place(value)[:-1]), name) for name, value in markers)
    anchors = ["middle"] * len(names)
    for index in range(1, len(names)):  # Two names that are close move apart.
        room = (len(names[index - 1][1]) + len(names[index][1])) * GLYPH / 2 + 8
        if (names[index][0] - names[index - 1][0]) / 100 * _NARROW < room:
            anchors[index - 1 : index + 1] = ["end", "start"]
    texts = "".join(
        f'<text x="{at:.2f}%" y="14" text-anchor="{anchor}">{escape(name)}</text>'
        for (at, name), anchor in zip(names, anchors, strict=True)
    )
    head = _row("", texts, "") if any(name for name, _ in markers) else ""
    body = "".join(_row(name, lines + drawing, value) for name, drawing, value in rows)
    return Markup(f'<div class="rows" role="group" aria-label="{escape(label)}">{head}{body}{axis}</div>')


def _row(name: str, drawing: str, value: str) -> str:
    lane = f'<svg xmlns="http://www.w3.org/2000/svg" class="lane" aria-hidden="true">{drawing}</svg>'
    shown = str(escape(name)).replace("_", "_<wbr/>")  # A long name may break after an underscore.
    return f'<div class="row"><span class="name">{shown}</span>{lane}<span class="value">{escape(value)}</span></div>'


def _scale(low: float, high: float) -> Place:
    """The place of a number between the ends of an axis, from 0 to 100 %; a number beyond an end is put at that end."""
    return lambda value: f"{100 * min(1.0, max(0.0, (value - low) / (high - low))):.2f}%"


def _across(style: str, start: str, end: str) -> str:
    return f'<line class="{style}" x1="{start}" y1="50%" x2="{end}" y2="50%"/>'


def _down(at: str) -> str:
    return f'x1="{at}" y1="0" x2="{at}" y2="100%"'
