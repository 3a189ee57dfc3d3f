"""Charts as inline SVG: lines over axes, histograms and distributions. Colours come from the page's style."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gatehouse.reports.axes import GLYPH, Frame, Point, axis_limits, drawn_axes, left_of, number_ticks, time_ticks
from gatehouse.reports.format import Html, escape

STYLES = 4  # Series are told apart by colour and dash; the page's style has this many.


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
    svg = framed_svg(size[0], size[1], f"{y} against {x}", [*axes, *clipped(frame, plot)])
    return with_legend(svg, [(line.name, style) for line, style in zip(series, entries, strict=True)])


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
    svg = framed_svg(size[0], size[1], f"{y} by {x}", [*axes, *plot])
    return with_legend(svg, [(name, style) for (name, _), style in zip(groups, styles, strict=True)])


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
        places = (6, 12 + int(len(groups[0][0]) * GLYPH) + 40)
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
    return framed_svg(width, height, label, [*shapes, floor, *marks, legend])


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
        styles.append("ref dashed" if reference else f"s{lines % STYLES}")
    return styles


def with_legend(svg: Html, entries: Sequence[tuple[str, str]]) -> Html:
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


def clipped(frame: Frame, parts: Sequence[str]) -> list[str]:
    """Cut off what lies outside the plot: a nested picture does it without ids."""
    bleed = 3  # Keeps lines at the edge whole.
    x, y = frame.left - bleed, frame.top - bleed
    width, height = frame.right - frame.left + 2 * bleed, frame.bottom - frame.top + 2 * bleed
    box = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    return [f'<svg class="clip" {box} viewBox="{x:.1f} {y:.1f} {width:.1f} {height:.1f}">', *parts, "</svg>"]


def _no_data(frame: Frame) -> str:
    x, y = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">no data</text>'


def framed_svg(width: int, height: int, title: str, parts: Sequence[str]) -> Html:
    """A picture with its size and its title, for those who cannot see it."""
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
