"""Charts as inline SVG: lines over axes, and horizontal bars."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gatehouse.components.reports.format import escape, number

Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """One line of a chart: its name, its points, and whether it is a dashed line of reference."""

    name: str
    points: Sequence[Point]
    reference: bool = False


def line_chart(
    series: Sequence[Series],
    x: str,
    y: str,
    x_range: Point | None = None,
    y_range: Point | None = None,
    size: tuple[int, int] = (440, 320),
) -> str:
    """Lines over two axes.

    Args:
        series: The lines; points that are not finite are left out.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        x_range: Its limits; by default those of the points.
        y_range: Likewise.
        size: Width and height in pixels.
    """
    width, height = size
    left, right, top, bottom = 52, 14, 12 + 16 * len(series), 42
    kept = [(line, [p for p in line.points if math.isfinite(p[0]) and math.isfinite(p[1])]) for line in series]
    x0, x1 = x_range or _limits([p[0] for _, points in kept for p in points])
    y0, y1 = y_range or _limits([p[1] for _, points in kept for p in points])

    def place(point: Point) -> tuple[float, float]:
        return (
            left + (point[0] - x0) / (x1 - x0) * (width - left - right),
            height - bottom - (point[1] - y0) / (y1 - y0) * (height - top - bottom),
        )

    parts = []
    for tick in _ticks(x0, x1):
        at = place((tick, y0))[0]
        parts.append(f'<line class="grid" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{height - bottom}"/>')
        parts.append(f'<text x="{at:.1f}" y="{height - bottom + 16}" text-anchor="middle">{_tick(tick)}</text>')
    for tick in _ticks(y0, y1):
        at = place((x0, tick))[1]
        parts.append(f'<line class="grid" x1="{left}" y1="{at:.1f}" x2="{width - right}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{left - 7}" y="{at + 4:.1f}" text-anchor="end">{_tick(tick)}</text>')
    parts.append(
        f'<path class="axis" fill="none" d="M{left},{top}V{height - bottom}H{width - right}"/>'
        f'<text class="label" x="{(left + width - right) / 2:.0f}" y="{height - 6}" text-anchor="middle">{escape(x)}</text>'
        f'<text class="label" transform="translate(13,{(top + height - bottom) / 2:.0f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y)}</text>'
    )
    colour = 0
    for index, (line, points) in enumerate(kept):
        style = "ref dashed" if line.reference else f"s{colour % 4}"
        colour += not line.reference
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py in map(place, points))
        parts.append(f'<polyline class="series {style}" points="{path}"/>')
        at = 10 + 16 * index
        parts.append(f'<line class="series {style}" x1="{left}" y1="{at}" x2="{left + 20}" y2="{at}"/>')
        parts.append(f'<text class="label" x="{left + 26}" y="{at + 4}">{escape(line.name)}</text>')
    return _svg(width, height, f"{y} against {x}", parts)


def bar_chart(bars: Sequence[tuple[str, float]], marker: float | None = None, size: tuple[int, int] = (640, 0)) -> str:
    """Horizontal bars from zero with their values, and optionally a dashed line at `marker`.

    Args:
        bars: Name and value; values that are not finite have no bar.
        marker: A value to compare with.
        size: Width in pixels; the height follows from the number of bars.
    """
    width, row, left, right = size[0], 21, 190, 70
    height = row * len(bars) + 8
    finite = [abs(value) for _, value in bars if math.isfinite(value)]
    top = max([*finite, abs(marker or 0.0)], default=0.0) or 1.0
    scale = (width - left - right) / top
    parts = []
    for index, (name, value) in enumerate(bars):
        y = 4 + index * row
        length = abs(value) * scale if math.isfinite(value) else 0.0
        short = name if len(name) <= 30 else name[:29] + "…"
        parts.append(f'<text class="label" x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(short)}</text>')
        parts.append(f'<rect class="f0" x="{left}" y="{y + 3}" width="{length:.1f}" height="{row - 7}" rx="2"/>')
        parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 14}">{number(float(value))}</text>')
    if marker is not None and math.isfinite(marker):
        at = left + abs(marker) * scale
        parts.append(f'<line class="ref dashed" x1="{at:.1f}" y1="0" x2="{at:.1f}" y2="{height}"/>')
    return _svg(width, height, "bars", parts)


def _svg(width: int, height: int, title: str, parts: list[str]) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    )


def _limits(values: Sequence[float]) -> Point:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    margin = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
    return low - margin, high + margin


def _ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Round numbers within [low, high], about `wanted` of them."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [index * step for index in range(first, math.floor(high / step + 1e-9) + 1)]


def _tick(value: float) -> str:
    return f"{value:.6g}"
