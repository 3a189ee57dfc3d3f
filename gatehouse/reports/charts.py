"""Charts as inline SVG: lines, dots, histograms over two axes, and rows of bars or dots beside names.

The page's style gives the colours. Axes have ticks on numbers, logarithms, times and categories. Charts of rows are as
wide as the page, and their text has one size everywhere.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import Markup, escape

from gatehouse.reports.format import column_format, shortened, ticks

Point = tuple[float, float]
Tick = tuple[float, str]
Ticks = Callable[[float, float], list[Tick]]

GLYPH = 6.7  # Width of an average character at the charts' font size, rather too wide than too narrow.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR, _DAY = 3600, 86400
_CLOCK = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200, 12000)
_MOST_DATES, _MOST_TICKS, _MOST_CHOICES, _LONGEST_CHOICE = 5, 7, 9, 16


@dataclass(frozen=True)
class Frame:
    """The plot inside a picture: its edges in pixels, and the numbers at these edges."""

    left: float
    top: float
    right: float
    bottom: float
    x0: float
    x1: float
    y0: float
    y1: float

    def x(self, value: float) -> float:
        """The pixel of a number on the horizontal axis."""
        return self.left + (value - self.x0) / (self.x1 - self.x0) * (self.right - self.left)

    def y(self, value: float) -> float:
        """The pixel of a number on the vertical axis."""
        return self.bottom - (value - self.y0) / (self.y1 - self.y0) * (self.bottom - self.top)


@dataclass(frozen=True)
class Axis:
    """One axis from `low` to `high`, in numbers of the data.

    `whole` puts ticks on whole numbers from 0 on, as for a count. `choices` are names of categories: category `i` is
    the number `i`, and `low` and `high` are ignored.
    """

    label: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    whole: bool = False
    times: bool = False
    choices: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, label: str, values: Sequence[float], log: bool = False, whole: bool = False, times: bool = False
    ) -> "Axis":
        """The axis over the finite values, with a margin at both ends."""
        finite = [value for value in values if math.isfinite(value) and (value > 1e-290 or not log)]
        if log:
            low, high = axis_limits([math.log10(value) for value in finite] or [0.0])
            return cls(label, 10**low, 10**high, log, whole)
        return cls(label, *axis_limits(finite), log, whole, times)

    @property
    def ends(self) -> Point:
        """The lowest and the highest position on the axis."""
        if self.choices:
            return -0.5, len(self.choices) - 0.5
        low, high = self.place(self.low), self.place(self.high)
        return (low, high) if high > low else axis_limits([low, high])

    def place(self, value: float) -> float:
        """The position of a number: its logarithm on a logarithmic axis, where NaN stands for a number without one."""
        if not self.log:
            return float(value)
        return math.log10(value) if value > 0 else math.nan

    def ticks(self, low: float, high: float) -> list[Tick]:
        """Positions of ticks between two positions, with their labels."""
        if self.choices:
            every = math.ceil(len(self.choices) / _MOST_CHOICES)
            names = [shortened(name, _LONGEST_CHOICE) for name in self.choices]
            return [(float(at), name) for at, name in enumerate(names) if at % every == 0]
        if self.times:
            return time_ticks(low, high)
        marks = _log_ticks(low, high) if self.log else number_ticks(low, high)
        if not self.whole:
            return marks
        numbers = [(at, 10**at if self.log else at) for at, _ in marks]
        return [(at, f"{value:.0f}") for at, value in numbers if value > -1e-9 and math.isclose(value, round(value))]


def axis_limits(values: Sequence[float]) -> Point:
    """The smallest and the largest value with a margin; never of zero width."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = (high - low) * 0.05
    if not high - low > max(1e-9 * abs(low), 1e-9 * abs(high), 1e-300):
        margin = abs(high) * 0.05 or 0.5
    return low - margin, high + margin


def number_ticks(low: float, high: float, count: int = 5) -> list[Tick]:
    """About `count` round numbers within [low, high], with their labels."""
    raw = (high - low) / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * magnitude for factor in (1, 2, 2.5, 5, 10) if factor * magnitude >= raw * 0.999)
    values = [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return list(zip(values, ticks(values, step), strict=True))


def _log_ticks(low: float, high: float) -> list[Tick]:
    """Round numbers between two logarithms to the base 10: powers of ten and, if there is room, 2 and 5 times these."""
    exponents = range(math.floor(low), math.ceil(high) + 1)
    marks: list[tuple[float, float]] = []
    for factors in ((1, 2, 5), (1,)):
        marks = [
            (exponent + math.log10(factor), factor * 10.0**exponent) for exponent in exponents for factor in factors
        ]
        marks = [(at, value) for at, value in marks if low <= at <= high]
        if len(marks) <= _MOST_TICKS:
            break
    if len(marks) < 2:
        return [(math.log10(value), label) for value, label in number_ticks(10**low, 10**high) if value > 0]
    every = math.ceil(len(marks) / _MOST_TICKS)
    return [(at, f"{value:g}") for at, value in marks[::every]]


def time_ticks(low: float, high: float) -> list[Tick]:
    """Round times within [low, high], seconds since 1970 in UTC, as clock times, dates, months or years."""
    first, last = (_EPOCH + timedelta(seconds=value) for value in (low, high))
    step = next((seconds for seconds in _CLOCK if (high - low) / seconds < _MOST_DATES), None)
    if step is not None:
        times = [
            _EPOCH + timedelta(seconds=step * index) for index in range(math.ceil(low / step), int(high // step) + 1)
        ]
        forms = ["%Y-%m-%d" if time.hour == time.minute == 0 else "%H:%M" for time in times]
        if forms and forms[0] == "%H:%M":
            forms[0] = "%Y-%m-%d %H:%M"  # The first label of an axis has the date too.
    else:
        months = range(12 * first.year + first.month - 1, 12 * last.year + last.month)
        every = next(count for count in _MONTHS if len(months) / count <= _MOST_DATES)
        starts = [datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months if month % every == 0]
        times = [start for start in starts if first <= start <= last]
        forms = ["%Y" if every >= 12 else "%Y-%m"] * len(times)
    return [((time - _EPOCH).total_seconds(), time.strftime(form)) for time, form in zip(times, forms, strict=True)]


def left_of(y0: float, y1: float, y_ticks: Ticks = number_ticks) -> float:
    """The left edge of a plot that leaves room for the tick labels of its vertical axis and the axis' name."""
    return max(54.0, 30 + 7.0 * max((len(label) for _, label in y_ticks(y0, y1)), default=0))


def drawn_axes(frame: Frame, x: str, y: str, x_ticks: Ticks = number_ticks, y_ticks: Ticks = number_ticks) -> list[str]:
    """Grid, ticks, the floor and the names of both axes, as SVG."""
    lines, labels, taken = [], [], -math.inf
    for tick, label in x_ticks(frame.x0, frame.x1):
        at = frame.x(tick)
        lines.append(f"M{at:.1f},{frame.top:.1f}V{frame.bottom:.1f}")
        # The edge of the picture would cut off a long label at the right end.
        anchor, width = ("end" if at + 3.5 * len(label) > frame.right + 12 else "middle"), GLYPH * len(label)
        start = at - width if anchor == "end" else at - width / 2
        if start > taken:
            labels.append(
                f'<text x="{at:.1f}" y="{frame.bottom + 17:.1f}" text-anchor="{anchor}">{escape(label)}</text>'
            )
            taken = start + width
    for tick, label in y_ticks(frame.y0, frame.y1):
        at = frame.y(tick)
        lines.append(f"M{frame.left:.1f},{at:.1f}H{frame.right:.1f}")
        labels.append(f'<text x="{frame.left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    across, down = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    floor = f'x1="{frame.left:.1f}" y1="{frame.bottom:.1f}" x2="{frame.right:.1f}" y2="{frame.bottom:.1f}"'
    places = (f'x="{across:.1f}" y="{frame.bottom + 36:.1f}"', f'transform="translate(13,{down:.1f}) rotate(-90)"')
    names = [
        f'<text class="label" {place} text-anchor="middle">{escape(name)}</text>'
        for place, name in zip(places, (x, y), strict=True)
    ]
    return [f'<path class="grid" d="{"".join(lines)}"/>', *labels, f'<line class="axis" {floor}/>', *names]


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
