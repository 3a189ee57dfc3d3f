"""Charts over two axes as inline SVG: lines and dots, histograms, distributions. The page's style gives the colours."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from gatehouse.reports.axes import GLYPH, Axis, Frame, Point, drawn_axes, left_of, number_ticks, time_ticks

STYLES = 4
"""The number of styles that tell series apart, by colour and by dash."""
SIZE = (450, 310)
_CROWD = 400  # Dots of a series above which they are drawn small.
_TITLED = 500  # Dots of a series up to which each has a tooltip.
_FARTHEST = 1e300  # Beyond this the distance between two points is infinite.


@dataclass(frozen=True)
class Series:
    """Lines and dots of one look; points that are not finite are left out.

    `titles` are the dots' tooltips. `style` is `s0` to `s3` (by default the next), `ref`, `soft` or `bad`.
    """

    name: str
    points: Sequence[Point] = ()
    lines: Sequence[Sequence[Point]] = ()
    dots: Sequence[Point] = ()
    titles: Sequence[str] = ()
    style: str = ""
    faint: bool = False


@dataclass(frozen=True)
class Bin:
    """One bin of a distribution from `low` to `high`; its height is the share of the rows over the width."""

    low: float
    high: float
    height: float


def line_chart(
    series: Sequence[Series],
    x: Axis | str,
    y: Axis | str,
    marks: Sequence[tuple[float, str]] = (),
    size: tuple[int, int] = SIZE,
) -> Markup:
    """Series over two axes, the first on top; what lies outside of the axes is cut off.

    `marks` are numbers on the horizontal axis with a dashed line, each with its tooltip.
    """
    points = [point for line in series for part in (line.points, *line.lines, line.dots) for point in part]
    points = [point for point in points if all(abs(value) < _FARTHEST for value in point)]
    x_axis = Axis.of(x, [point[0] for point in points]) if isinstance(x, str) else x
    y_axis = Axis.of(y, [point[1] for point in points]) if isinstance(y, str) else y
    (x0, x1), (y0, y1) = x_axis.ends, y_axis.ends
    frame = Frame(left_of(y0, y1, y_axis.ticks), 10, size[0] - 12, size[1] - 44, x0, x1, y0, y1)
    styles = series_styles([line.style for line in series])
    drawn = [
        f'<line class="ref dashed" x1="{(at := frame.x(x_axis.place(value))):.1f}" x2="{at:.1f}" y1="{frame.top}" '
        f'y2="{frame.bottom}"><title>{escape(name)}</title></line>'
        for value, name in marks
    ]
    drawn += [
        _drawn(frame, x_axis, y_axis, line, style) for line, style in reversed(list(zip(series, styles, strict=True)))
    ]
    if not points:
        middle = f'x="{(frame.left + frame.right) / 2:.1f}" y="{(frame.top + frame.bottom) / 2:.1f}"'
        drawn.append(f'<text {middle} text-anchor="middle">no data</text>')
    axes = drawn_axes(frame, x_axis.label, y_axis.label, x_axis.ticks, y_axis.ticks)
    # A nested picture cuts off what lies outside of the plot without an id; its margin keeps lines at the edge whole.
    left, top, width, height = frame.left - 3, frame.top - 3, frame.right - frame.left + 6, frame.bottom - frame.top + 6
    place = f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}"'
    clip = f'<svg class="clip" {place} viewBox="{left:.1f} {top:.1f} {width:.1f} {height:.1f}">'
    svg = framed_svg(*size, f"{y_axis.label} against {x_axis.label}", [*axes, clip, *drawn, "</svg>"])
    # A dot of the legend is filled in the colour of a line.
    fills = {"soft": "f-soft", "bad": "f-bad", "ref dashed": "f-soft"}
    entries = [
        (line.name, style if line.points or line.lines else fills.get(style, style.replace("s", "f", 1)))
        for line, style in zip(series, styles, strict=True)
        if line.name and (line.points or line.lines or line.dots)
    ]
    return with_legend(svg, entries)


def _drawn(frame: Frame, x: Axis, y: Axis, series: Series, style: str) -> str:
    """The lines and dots of a series; dots that fall on one pixel are drawn once."""

    def pixels(points: Sequence[Point]) -> list[Point | None]:
        places = [(x.place(first), y.place(second)) for first, second in points]
        inside = [abs(first) < _FARTHEST and abs(second) < _FARTHEST for first, second in places]
        return [
            (frame.x(first), frame.y(second)) if kept else None
            for (first, second), kept in zip(places, inside, strict=True)
        ]

    faint, parts = " faint" if series.faint else "", []
    lines = [
        [point for point in pixels(line) if point is not None] for line in (series.points, *series.lines) if len(line)
    ]
    if lines:
        path = "".join(f"M{'L'.join(f'{a:.1f},{b:.1f}' for a, b in line)}" for line in lines if len(line) > 1)
        thin = " thin" if len(lines) > 1 else ""
        parts.append(f'<path class="series {style}{thin}{faint}" d="{path}"/>')
    lone = [line[0] for line in (series.points, *series.lines) if len(line) == 1]
    dots = pixels(series.dots or lone)
    small = " small" if len(dots) > _CROWD else ""
    if series.titles and len(dots) <= _TITLED:
        parts += [
            f'<path class="dots {style}{faint}" d="M{dot[0]:.1f},{dot[1]:.1f}h0"><title>{escape(title)}</title></path>'
            for dot, title in zip(dots, series.titles, strict=True)
            if dot is not None
        ]
    elif dots:
        path = "".join(dict.fromkeys(f"M{dot[0]:.0f},{dot[1]:.0f}h0" for dot in dots if dot is not None))
        parts.append(f'<path class="dots {style}{small}{faint}" d="{path}"/>')
    return "".join(parts)


def series_styles(names: Sequence[str]) -> list[str]:
    """The CSS classes of series: their own, or the next of `s0` to `s3`."""
    styles: list[str] = []
    for name in names:
        automatic = sum(style[:1] == "s" and style != "soft" for style in styles) % STYLES
        styles.append({"ref": "ref dashed"}.get(name, name or f"s{automatic}"))
    return styles


def histogram(
    edges: Sequence[float],
    groups: Sequence[tuple[str, Sequence[float]]],
    x: str,
    y: str,
    times: bool = False,
    size: tuple[int, int] = SIZE,
) -> Markup:
    """Histograms of several groups over the same bins, on top of each other.

    `edges` of the bins are ascending, one more than heights, with `times` in seconds since 1970; a height that is not
    finite counts as 0.
    """
    finite = [(name, [height if math.isfinite(height) else 0.0 for height in heights]) for name, heights in groups]
    styles = series_styles([""] * len(groups))
    top = max((height for _, heights in finite for height in heights), default=0.0) * 1.06 or 1.0
    frame = Frame(left_of(0.0, top), 10, size[0] - 12, size[1] - 44, edges[0], edges[-1], 0.0, top)
    drawn = []
    for (_, heights), style in zip(finite, styles, strict=True):
        steps = [
            f"L{frame.x(edge):.1f},{frame.y(height):.1f}"
            for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
            for edge in (low, high)
        ]
        path = f"M{frame.left},{frame.bottom:.1f}{''.join(steps)}L{frame.right},{frame.bottom:.1f}"
        drawn.append(f'<path class="area {style}" d="{path}Z"/><path class="series {style}" d="{path}"/>')
    axes = drawn_axes(frame, x, y, time_ticks if times else number_ticks)
    svg = framed_svg(*size, f"{y} by {x}", [*axes, *drawn])
    return with_legend(svg, [(name, style) for (name, _), style in zip(groups, styles, strict=True)])


def distributions(
    groups: Sequence[tuple[str, Sequence[Bin]]],
    label: str,
    limits: Point,
    ends: Sequence[str] = (),
) -> Markup:
    """One distribution, filled, and another one as a dashed outline, small enough for a page with hundreds of them.

    `label` is the text alternative; `ends` are labels of both ends, in place of numbers along the axis.
    """
    width, height = 300, 132
    highest = max((part.height for _, bins in groups for part in bins), default=0.0)
    frame = Frame(6, 22 if len(groups) > 1 else 6, width - 6, height - 20, *limits, 0.0, highest * 1.04 or 1.0)
    looks = ('class="own"', 'class="other"')
    drawn = [f'<path {look} d="{_steps(frame, bins)}"/>' for (_, bins), look in zip(groups, looks, strict=False)]
    if len(groups) > 1:
        starts = (6, 12 + int(len(groups[0][0]) * GLYPH) + 40)
        drawn += [
            f'<path {look} d="M{start},8h20"/><text x="{start + 26}" y="12">{escape(name)}</text>'
            for (name, _), look, start in zip(groups, ('class="key s0"', 'class="other"'), starts, strict=False)
        ]
    places = [(frame.x(tick), text, "middle") for tick, text in number_ticks(*limits, 4)]
    places = [place for place in places if 14 < place[0] < width - 14]
    if ends:
        places = [(frame.left, ends[0], "start"), (frame.right, ends[-1], "end")]
    drawn += [
        f'<text x="{at:.0f}" y="{height - 5}" text-anchor="{anchor}">{escape(text)}</text>'
        for at, text, anchor in places
    ]
    return framed_svg(width, height, label, [*drawn, f'<path class="axis" d="M6,{frame.bottom:.0f}H{width - 6}"/>'])


def sparkline(bins: Sequence[Bin], limits: Point) -> Markup:
    """The shape of one distribution, without axes."""
    frame = Frame(0, 2, 84, 48, *limits, 0.0, max((part.height for part in bins), default=0.0) or 1.0)
    shape = f'<path class="own" d="{_steps(frame, bins)}"/>'
    return Markup(f'<svg class="spark" viewBox="0 0 84 48" preserveAspectRatio="none" aria-hidden="true">{shape}</svg>')


def _steps(frame: Frame, bins: Sequence[Bin]) -> str:
    """The outline of bins from floor to floor, cut off at the frame."""
    inside = [part for part in bins if part.high > frame.x0 and part.low < frame.x1]
    if not inside:
        return ""
    steps = [f"V{frame.y(part.height):.0f}H{frame.x(min(part.high, frame.x1)):.0f}" for part in inside]
    start = frame.x(max(inside[0].low, frame.x0))
    return f"M{start:.0f},{frame.bottom:.0f}{''.join(steps)}V{frame.bottom:.0f}"


def meter(share: float, other: float | None = None) -> Markup:
    """A share as a bar, and a tick at another share; the page shows the number beside it."""
    tick = f'<path class="tick" d="M{min(96, 100 * other):.0f},0h4v8h-4"/>' if other else ""
    bar = f'<path d="M0,0h{max(1, 100 * share):.0f}v8H0"/>' if share > 0 else ""
    box = 'viewBox="0 0 100 8" preserveAspectRatio="none"'
    return Markup(f'<svg class="meter" {box} aria-hidden="true">{bar}{tick}</svg>')


def with_legend(svg: Markup, entries: Sequence[tuple[str, str]]) -> Markup:
    """A chart below its legend, which the browser wraps: the name and the class of each line or dot."""
    if not entries:
        return svg
    dot, line = '<circle class="{}" cx="10" cy="5" r="4"/>', '<path class="series {}" d="M0,5h20"/>'
    names = "".join(
        f'<span><svg width="20" height="10" aria-hidden="true">'
        f"{(dot if style.startswith(('f', 'hollow')) else line).format(style)}</svg>{escape(name)}</span>"
        for name, style in entries
    )
    return Markup(f'<div class="chart"><div class="legend">{names}</div>{svg}</div>')


def framed_svg(width: float, height: float, title: str, parts: Sequence[str]) -> Markup:
    """A picture with its size and its text alternative."""
    # The text of a chart of this width is still large enough where a phone shrinks it; a wider chart scrolls there.
    fits = ' class="fits"' if 400 <= width <= 460 else ""
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    label = f'role="img" aria-label="{escape(title)}"'
    return Markup(f'<svg xmlns="http://www.w3.org/2000/svg"{fits} {size} {label}>{"".join(parts)}</svg>')
