"""Charts as inline SVG: lines over axes, histograms, horizontal bars and dots. Colours come from the page's style."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gatehouse.components.reports.axes import Frame, Point, axis_limits, drawn_axes, left_of, number_ticks, time_ticks
from gatehouse.components.reports.format import Html, column_format, escape

_GLYPH = 6.7  # Width of an average character at the charts' font size; errs on the wide side.
_STYLES = 4  # Series are told apart by colour and dash; the page's style has this many.
_ROW = 22


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        name: For the legend.
        points: In drawing order.
        reference: Draw it thin and dashed, as something to compare with.
        marked: Draw a dot at every point.
    """

    name: str
    points: Sequence[Point]
    reference: bool = False
    marked: bool = False


@dataclass(frozen=True)
class Dot:
    """One row of a dot chart: a value, its interval, and another value to compare with, each left out where NaN."""

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    other: float = math.nan
    mark: str = ""


@dataclass(frozen=True)
class Bin:
    """One step of a distribution: from `low` to `high`, as high as the share of rows in it over its width."""

    low: float
    high: float
    height: float


def line_chart(
    series: Sequence[Series],
    x: str,
    y: str,
    x_range: Point | None = None,
    y_range: Point | None = None,
    size: tuple[int, int] = (450, 310),
    times: bool = False,
) -> Html:
    """Lines over two axes.

    Args:
        series: The lines; points that are not finite are left out, and what lies outside the axes is cut off.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        x_range: Its limits; by default those of the points.
        y_range: Likewise.
        size: Width and height in pixels.
        times: Whether the horizontal axis is one of times, in seconds since 1970.
    """
    kept = [(line, _finite(line.points)) for line in series]
    entries = _styles(line.reference for line in series)
    x0, x1 = axis_limits([point[0] for _, points in kept for point in points], x_range)
    y0, y1 = axis_limits([point[1] for _, points in kept for point in points], y_range)
    frame = Frame(left_of(y0, y1), 10, size[0] - 12, size[1] - 44, x0, x1, y0, y1)
    drawn = [_line(frame, line, points, style) for (line, points), style in zip(kept, entries, strict=True)]
    if not any(points for _, points in kept):
        drawn = [_no_data(frame)]
    # References first, so that the lines that matter lie on top; within them the first series.
    order = sorted(range(len(series)), key=lambda index: (not series[index].reference, -index))
    plot = [drawn[index] for index in order] if len(drawn) == len(series) else drawn
    axes = drawn_axes(frame, x, y, time_ticks if times else number_ticks)
    svg = _svg(size[0], size[1], f"{y} against {x}", [*axes, *_clipped(frame, plot)])
    return _with_legend(svg, [(line.name, style) for line, style in zip(series, entries, strict=True)])


def histogram(
    edges: Sequence[float],
    groups: Sequence[tuple[str, Sequence[float]]],
    x: str,
    y: str,
    size: tuple[int, int] = (450, 310),
    times: bool = False,
) -> Html:
    """Histograms of several groups over the same bins, laid over each other.

    Args:
        edges: The bins' edges, ascending, one more than heights.
        groups: Name and heights of each group.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        size: Width and height in pixels.
        times: Whether the edges are times, in seconds since 1970.

    Raises:
        ValueError: if a group has another number of heights than there are bins.
    """
    wrong = [name for name, heights in groups if len(heights) != len(edges) - 1]
    if wrong:
        raise ValueError(f"histogram: expected {len(edges) - 1} heights, found another number in {', '.join(wrong)}")
    styles = _styles(False for _ in groups)
    highest = max((height for _, heights in groups for height in heights if math.isfinite(height)), default=0.0)
    top = highest * 1.06 or 1.0
    frame = Frame(left_of(0.0, top), 10, size[0] - 12, size[1] - 44, edges[0], edges[-1], 0.0, top)
    plot = []
    for (_, heights), style in zip(groups, styles, strict=True):
        steps = [
            f"L{frame.x(edges[at + side]):.1f},{frame.y(height if math.isfinite(height) else 0.0):.1f}"
            for at, height in enumerate(heights)
            for side in (0, 1)
        ]
        path = f"M{frame.left},{frame.bottom:.1f}{''.join(steps)}L{frame.right},{frame.bottom:.1f}"
        plot.append(f'<path class="area {style}" d="{path}Z"/><path class="series {style}" d="{path}"/>')
    axes = drawn_axes(frame, x, y, time_ticks if times else number_ticks)
    svg = _svg(size[0], size[1], f"{y} by {x}", [*axes, *plot])
    return _with_legend(svg, [(name, style) for (name, _), style in zip(groups, styles, strict=True)])


def distributions(
    groups: Sequence[tuple[str, Sequence[Bin]]],
    label: str,
    limits: Point,
    ends: Sequence[str] = (),
    size: tuple[int, int] = (300, 132),
) -> Html:
    """One or two distributions over one axis, small enough to stand on a page in hundreds.

    Args:
        groups: Name and bins of each. The first is filled; a second, to compare with, is a dashed outline. A height is
            a density, so that areas compare even where bins differ.
        label: What it shows, for those who cannot see it.
        limits: Ends of the axis; bins are cut off there.
        ends: What stands at the ends of the axis, in place of numbers along it.
        size: Width and height in pixels.
    """
    width, height = size
    highest = max((one.height for _, bins in groups for one in bins), default=0.0)
    legend = ""
    if len(groups) > 1:
        samples = zip(groups, ('class="key s0"', 'class="other"'), strict=False)
        places = (6, 12 + int(len(groups[0][0]) * _GLYPH) + 40)
        legend = "".join(
            f'<path {style} d="M{at},8h20"/><text x="{at + 26}" y="12">{escape(name)}</text>'
            for ((name, _), style), at in zip(samples, places, strict=False)
        )
    frame = Frame(6, 22 if legend else 6, width - 6, height - 20, *limits, 0.0, highest * 1.04 or 1.0)
    shapes = [
        f'<path {style} d="{_steps(frame, bins)}"/>'
        for (_, bins), style in zip(groups, ('class="own"', 'class="other"'), strict=False)
    ]
    placed = [(frame.x(tick), text, "middle") for tick, text in number_ticks(*limits, 4)]
    placed = [one for one in placed if 14 < one[0] < width - 14]
    if ends:
        placed = [(frame.left, ends[0], "start"), (frame.right, ends[-1], "end")]
    marks = [
        f'<text x="{at:.0f}" y="{height - 5}" text-anchor="{anchor}">{escape(text)}</text>'
        for at, text, anchor in placed
    ]
    floor = f'<path class="axis" d="M6,{frame.bottom:.0f}H{width - 6}"/>'
    return _svg(width, height, label, [*shapes, floor, *marks, legend])


def sparkline(bins: Sequence[Bin], limits: Point) -> Html:
    """The shape of one distribution, without axes; the caller says in words what matters of it."""
    frame = Frame(0, 2, 84, 48, *limits, 0.0, max((one.height for one in bins), default=0.0) or 1.0)
    shape = f'<path class="own" d="{_steps(frame, bins)}"/>'
    return Html(f'<svg class="spark" viewBox="0 0 84 48" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>')


def _steps(frame: Frame, bins: Sequence[Bin]) -> str:
    """The outline of bins from floor to floor, within the frame."""
    kept = [one for one in bins if one.high > frame.x0 and one.low < frame.x1]
    if not kept:
        return ""
    parts = [f"M{frame.x(max(kept[0].low, frame.x0)):.0f},{frame.bottom:.0f}"]
    parts += [f"V{frame.y(one.height):.0f}H{frame.x(min(one.high, frame.x1)):.0f}" for one in kept]
    return "".join([*parts, f"V{frame.bottom:.0f}"])


def bar_chart(
    bars: Sequence[tuple[str, float]],
    marker: float | None = None,
    size: tuple[int, int] = (640, 0),
    marker_name: str = "",
) -> Html:
    """Horizontal bars from zero with their values, and optionally a dashed line at `marker`.

    Args:
        bars: Name and value; values that are not finite have no bar.
        marker: A value to compare with.
        size: Width in pixels; the height follows from the number of bars.
        marker_name: What the marker is, written above it.
    """
    finite = [value for _, value in bars if math.isfinite(value)]
    marks = [marker] if marker is not None and math.isfinite(marker) else []
    low, high = min([0.0, *finite, *marks]), max([0.0, *finite, *marks])
    top = 20.0 if marks and marker_name else 4.0
    right = size[0] - 76
    frame = _rows(size[0], right, top, [name for name, _ in bars], low, high if high > low else low + 1.0)
    zero, write = frame.x(0.0), column_format(value for _, value in bars)
    drawn, values = [], []
    for index, (name, value) in enumerate(bars):
        middle = frame.top + (index + 0.5) * _ROW
        at = frame.x(value) if math.isfinite(value) else zero
        box = f'x="{min(zero, at):.1f}" y="{middle - 7:.1f}" width="{abs(at - zero):.1f}" height="14"'
        drawn.append(f'{_row_name(frame, middle, name)}<rect class="f0" {box} rx="2"/>')
        place = f'x="{max(zero, at) + 7:.1f}" y="{middle + 4:.1f}"'
        values.append(f'<text class="halo" {place}>{escape(write(value))}</text>')
    axis = f'<line class="axis" {_vertical(frame, zero)}/>'
    # The values are drawn after the marker, so that their halo keeps them readable on it.
    return _svg(
        size[0],
        int(frame.bottom + 6),
        "bars",
        [*drawn, axis, *_markers(frame, [(marker_name, at) for at in marks]), *values],
    )


def dot_chart(
    dots: Sequence[Dot],
    x: str,
    markers: Sequence[tuple[str, float]] = (),
    names: Sequence[str] = (),
    size: tuple[int, int] = (760, 0),
) -> Html:
    """One row a dot: where bars from zero would hide differences that matter.

    Args:
        dots: The rows, from the top; `mark` is empty, `bad`, or `soft` for rows that count less.
        x: Label of the axis. It spans all values, and the intervals of the rows that count; others are cut off.
        markers: Name and value of dashed vertical lines.
        names: What the full and the hollow dots are; empty for no legend.
        size: Width in pixels; the height follows from the number of rows.
    """
    marks = [(name, value) for name, value in markers if math.isfinite(value)]
    spanned = [value for dot in dots for value in (dot.value, dot.other)]
    spanned += [value for dot in dots if dot.mark != "soft" for value in (dot.low, dot.high)]
    low, high = axis_limits(
        [value for value in [*spanned, *(value for _, value in marks)] if math.isfinite(value)], None
    )
    frame = _rows(size[0], size[0] - 70, 26 if marks else 10, [dot.name for dot in dots], low, high)
    grid = [
        f'<line class="grid" {_vertical(frame, frame.x(tick))}/>'
        f'<text x="{frame.x(tick):.1f}" y="{frame.bottom + 17:.1f}" text-anchor="middle">{label}</text>'
        for tick, label in number_ticks(low, high)
    ]
    lines = _markers(frame, marks)
    write = column_format(dot.value for dot in dots if math.isfinite(dot.value))
    rows = [_dot_row(frame, frame.top + (index + 0.5) * _ROW, dot, write) for index, dot in enumerate(dots)]
    middle = (frame.left + frame.right) / 2
    label = f'<text class="label" x="{middle:.1f}" y="{frame.bottom + 36:.1f}" text-anchor="middle">{escape(x)}</text>'
    svg = _svg(size[0], int(frame.bottom + 44), x, [*grid, *lines, *rows, label])
    return _with_legend(svg, list(zip(names, ("f0", "hollow s1"), strict=False)))


def _dot_row(frame: Frame, y: float, dot: Dot, write: Callable[[float], str]) -> str:
    parts = [_row_name(frame, y, dot.name)]
    style = {"bad": "f-bad", "soft": "f-soft"}.get(dot.mark, "f0")
    stroke = {"bad": "l-bad", "soft": "ref"}.get(dot.mark, "s0")
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        start, end = max(frame.x(dot.low), frame.left), min(frame.x(dot.high), frame.right)
        ends = f'x1="{start:.1f}" y1="{y:.1f}" x2="{end:.1f}" y2="{y:.1f}"'
        parts.append(f'<line class="range {stroke}" {ends}/>')
    if math.isfinite(dot.other):
        parts.append(f'<circle class="hollow s1" cx="{frame.x(dot.other):.1f}" cy="{y:.1f}" r="3.5"/>')
    if math.isfinite(dot.value):
        parts.append(f'<circle class="{style}" cx="{frame.x(dot.value):.1f}" cy="{y:.1f}" r="4.5"/>')
    text = escape(write(dot.value) if math.isfinite(dot.value) else "–")
    parts.append(f'<text x="{frame.right + 64:.1f}" y="{y + 4:.1f}" text-anchor="end">{text}</text>')
    return "".join(parts)


def _rows(width: int, right: float, top: float, names: Sequence[str], low: float, high: float) -> Frame:
    longest = max((len(name) for name in names), default=0)
    left = min(max(60.0, longest * _GLYPH + 20), 0.36 * width)
    return Frame(left, top, right, top + _ROW * max(len(names), 1), low, high, 0.0, 1.0)


def _row_name(frame: Frame, y: float, name: str) -> str:
    room = int((frame.left - 14) / _GLYPH)
    # Long names of one table mostly differ at their ends.
    short = name if len(name) <= room else f"{name[: room // 2]}…{name[room // 2 + 1 - room :]}"
    full = "" if short == name else f"<title>{escape(name)}</title>"
    place = f'x="{frame.left - 10:.1f}" y="{y + 4:.1f}"'
    return f'<text class="label" {place} text-anchor="end">{full}{escape(short)}</text>'


def _markers(frame: Frame, marks: Sequence[tuple[str, float]]) -> list[str]:
    """Dashed lines with their names above; where two are close, the names give way to both sides."""
    placed = sorted((frame.x(value), name) for name, value in marks)
    anchors = ["middle"] * len(placed)
    for index in range(1, len(placed)):
        room = (len(placed[index - 1][1]) + len(placed[index][1])) * _GLYPH / 2 + 8
        if placed[index][0] - placed[index - 1][0] < room:
            anchors[index - 1 : index + 1] = ["end", "start"]
    lines = [f'<line class="ref dashed" {_vertical(frame, at, 4)}/>' for at, _ in placed]
    return lines + [
        f'<text x="{at:.1f}" y="{frame.top - 8:.1f}" text-anchor="{anchor}">{escape(name)}</text>'
        for (at, name), anchor in zip(placed, anchors, strict=True)
        if name
    ]


def _vertical(frame: Frame, at: float, above: float = 0.0) -> str:
    return f'x1="{at:.1f}" y1="{frame.top - above:.1f}" x2="{at:.1f}" y2="{frame.bottom:.1f}"'


def _line(frame: Frame, line: Series, points: Sequence[Point], style: str) -> str:
    placed = [(frame.x(x), frame.y(y)) for x, y in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    dots = placed if line.marked or len(placed) == 1 else []
    fill = style.replace("s", "f", 1) if style.startswith("s") else "f-soft"
    circles = "".join(f'<circle class="{fill}" cx="{x:.1f}" cy="{y:.1f}" r="2.8"/>' for x, y in dots)
    return f'<polyline class="series {style}" points="{path}"/>{circles}'


def _styles(references: Iterable[bool]) -> list[str]:
    """A style for every series; references share one."""
    styles: list[str] = []
    for reference in references:
        lines = sum(style != "ref dashed" for style in styles)
        styles.append("ref dashed" if reference else f"s{lines % _STYLES}")
    return styles


def _with_legend(svg: Html, entries: Sequence[tuple[str, str]]) -> Html:
    """A chart below the names of its series, which the browser wraps: beside each a sample of its line, or its dot."""
    if not entries:
        return svg
    dot, line = '<circle class="{}" cx="10" cy="5" r="4"/>', '<path class="series {}" d="M0,5h20"/>'
    names = "".join(
        f'<span><svg width="20" height="10" aria-hidden="true">'
        f"{(dot if style.startswith(('f', 'hollow')) else line).format(style)}</svg>{escape(name)}</span>"
        for name, style in entries
    )
    return Html(f'<div class="chart"><div class="legend">{names}</div>{svg}</div>')


def _clipped(frame: Frame, parts: Sequence[str]) -> list[str]:
    """Cut off what lies outside the plot: a nested picture does it without ids."""
    bleed = 3  # Keeps lines at the edge whole.
    x, y = frame.left - bleed, frame.top - bleed
    width, height = frame.right - frame.left + 2 * bleed, frame.bottom - frame.top + 2 * bleed
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return [f'<svg class="clip" {box} viewBox="{x:.1f} {y:.1f} {width:.1f} {height:.1f}">', *parts, "</svg>"]


def _no_data(frame: Frame) -> str:
    x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">no data</text>'


def _svg(width: int, height: int, title: str, parts: Sequence[str]) -> Html:
    # Of a chart this wide, text is still large enough where a phone makes it fit; a wider one scrolls there.
    fits = ' class="fits"' if 400 <= width <= 460 else ""
    return Html(
        f'<svg xmlns="http://www.w3.org/2000/svg"{fits} width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _finite(points: Sequence[Point]) -> list[Point]:
    # Further out, distances between points are infinite.
    return [(float(x), float(y)) for x, y in points if abs(x) < 1e300 and abs(y) < 1e300]
