"""Charts of many dots and lines over axes of numbers, of their logarithms, or of categories.

A layer is drawn as one path, so that ten thousand dots cost some bytes each, and dots that fall on one pixel are one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gatehouse.reports.axes import Frame, Point, Tick, axis_limits, drawn_axes, left_of, number_ticks
from gatehouse.reports.charts import clipped, framed_svg, with_legend
from gatehouse.reports.format import Html, escape, power, shortened

SIZE = (450, 310)
_LONGEST_LABEL = 16
_MOST_LABELS = 9
_CROWD = 400  # Dots of a layer, from which on they are small.
_TITLED = 500  # Dots of a layer, up to which each says its name when it is pointed at.


@dataclass(frozen=True)
class Axis:
    """One axis.

    Attributes:
        label: What stands beside it.
        low: Its lower end, as a number of the data.
        high: Its upper end.
        log: Whether it shows logarithms; both ends are above 0 then.
        choices: For an axis of categories, their names: the number of one is its place among them.
        whole: Whether its ticks are whole numbers from 0 on only, as of what is counted.
    """

    label: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    choices: tuple[str, ...] = ()
    whole: bool = False

    @classmethod
    def of(cls, label: str, values: Sequence[float], log: bool = False, whole: bool = False) -> "Axis":
        """The axis that spans the finite ones of these values, with a margin at both ends."""
        finite = [value for value in values if math.isfinite(value) and (value > 1e-290 or not log)]
        if log:
            low, high = (math.log10(end(finite, default=1.0)) for end in (min, max))
            margin = (high - low) * 0.05 or 0.1
            return cls(label, 10 ** (low - margin), 10 ** (high + margin), True, whole=whole)
        low, high = min(finite, default=0.0), max(finite, default=1.0)
        low, high = axis_limits([low, high], None)
        margin = (high - low) * 0.05
        return cls(label, low - margin, high + margin, whole=whole)

    @property
    def ends(self) -> Point:
        """The lowest and the highest position on the axis."""
        if self.choices:
            return -0.5, len(self.choices) - 0.5
        return axis_limits([], (self.place(self.low), self.place(self.high)))

    def place(self, value: float) -> float:
        """Where a number stands on the axis: its logarithm on one of logarithms; NaN for a number that has none."""
        if not self.log:
            return float(value)
        return math.log10(value) if value > 0 else math.nan

    def ticks(self, low: float, high: float) -> list[Tick]:
        """Where ticks stand between two places, with their labels."""
        if self.choices:
            every = math.ceil(len(self.choices) / _MOST_LABELS)
            names = [shortened(name, _LONGEST_LABEL) for name in self.choices]
            return [(float(at), name) for at, name in enumerate(names) if at % every == 0]
        if self.whole and self.log:
            return [(at, str(round(10**at))) for at, _ in _log_ticks(low, high) if math.isclose(10**at, round(10**at))]
        if self.whole:
            wanted = max(1, min(5, 1 + math.floor(high) - max(0, math.ceil(low))))
            found = number_ticks(low, high, wanted)
            return [(at, str(int(at))) for at, _ in found if at >= 0 and at == int(at)]
        return _log_ticks(low, high) if self.log else number_ticks(low, high)


@dataclass(frozen=True)
class Layer:
    """Dots and lines of one look.

    Attributes:
        name: For the legend; empty for none.
        style: `s0` to `s3`, `soft` or `bad`, which the page's style gives a colour.
        dots: Where dots stand, in numbers of the data.
        titles: What each dot says when it is pointed at; left out for none.
        lines: Lines, each a sequence of points.
        faint: Whether it stands back behind the others.
    """

    name: str
    style: str
    dots: Sequence[Point] = ()
    titles: Sequence[str] = ()
    lines: Sequence[Sequence[Point]] = ()
    faint: bool = False


def plot(
    layers: Sequence[Layer],
    x: Axis,
    y: Axis,
    marks: Sequence[tuple[float, str]] = (),
    below: Sequence[str] = (),
    size: tuple[int, int] = SIZE,
) -> Html:
    """Layers over two axes, the last on top; points that are not finite are left out, those outside are cut off.

    Args:
        layers: What is drawn.
        x: The horizontal axis.
        y: The vertical axis.
        marks: Numbers on the horizontal axis where a dashed line stands, each with what it says when pointed at.
        below: SVG that lies below the layers, drawn for `frame_of` the same axes and size.
        size: Width and height in pixels.
    """
    frame = frame_of(x, y, size)
    shown = [
        f'<line class="ref dashed" x1="{frame.x(x.place(at)):.1f}" x2="{frame.x(x.place(at)):.1f}" '
        f'y1="{frame.top}" y2="{frame.bottom}"><title>{escape(name)}</title></line>'
        for at, name in marks
    ]
    shown += [_layer(frame, x, y, layer) for layer in layers]
    if not any(layer.dots or layer.lines for layer in layers):
        across, down = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
        shown.append(f'<text x="{across:.1f}" y="{down:.1f}" text-anchor="middle">no data</text>')
    axes = drawn_axes(frame, x.label, y.label, x.ticks, y.ticks)
    svg = framed_svg(size[0], size[1], f"{y.label} against {x.label}", [*below, *axes, *clipped(frame, shown)])
    entries = [(layer.name, _sample(layer)) for layer in layers if layer.name and (layer.dots or layer.lines)]
    return with_legend(svg, entries)


def frame_of(x: Axis, y: Axis, size: tuple[int, int] = SIZE) -> Frame:
    """The frame of a plot over two axes."""
    (x0, x1), (y0, y1) = x.ends, y.ends
    return Frame(left_of(y0, y1, y.ticks), 10, size[0] - 12, size[1] - 44, x0, x1, y0, y1)


def _layer(frame: Frame, x: Axis, y: Axis, layer: Layer) -> str:
    def pixels(points: Sequence[Point]) -> list[Point]:
        placed = [(x.place(one), y.place(other)) for one, other in points]
        return [
            (frame.x(one), frame.y(other)) if math.isfinite(one) and math.isfinite(other) else (math.nan, math.nan)
            for one, other in placed
        ]

    faint = " faint" if layer.faint else ""
    drawn = []
    if layer.lines:
        finite = [[point for point in pixels(line) if point[0] == point[0]] for line in layer.lines]
        path = "".join("M" + "L".join(f"{a:.1f},{b:.1f}" for a, b in line) for line in finite if len(line) > 1)
        thin = " thin" if len(layer.lines) > 1 else ""
        drawn.append(f'<path class="series {layer.style}{thin}{faint}" d="{path}"/>')
    placed = pixels(layer.dots)
    small = " small" if len(placed) > _CROWD else ""
    if layer.titles and len(placed) <= _TITLED:
        drawn += [
            f'<path class="dots {layer.style}{faint}" d="M{a:.1f},{b:.1f}h0"><title>{escape(title)}</title></path>'
            for (a, b), title in zip(placed, layer.titles, strict=True)
            if a == a
        ]
    elif placed:
        path = "".join(dict.fromkeys(f"M{a:.0f},{b:.0f}h0" for a, b in placed if a == a))
        drawn.append(f'<path class="dots {layer.style}{small}{faint}" d="{path}"/>')
    return "".join(drawn)


def _sample(layer: Layer) -> str:
    """The class of the layer's sample in a legend."""
    if not layer.dots:
        return layer.style
    return {"soft": "f-soft", "bad": "f-bad"}.get(layer.style, layer.style.replace("s", "f", 1))


def _log_ticks(low: float, high: float) -> list[Tick]:
    """Round numbers between two logarithms to the base 10: powers of ten, and where there is room, 2 and 5 times."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    for factors in ((1, 2, 5), (1,)):
        found = [(power + math.log10(factor), factor * 10.0**power) for power in powers for factor in factors]
        found = [one for one in found if low <= one[0] <= high]
        if len(found) <= _MOST_LABELS - 2:
            break
    if len(found) < 2:
        between = number_ticks(10**low, 10**high)
        return [(math.log10(value), label) for value, label in between if value > 0]
    every = math.ceil(len(found) / (_MOST_LABELS - 2))
    return [(at, f"{value:g}" if 1e-4 <= value < 1e6 else power(value)) for at, value in found[::every]]
