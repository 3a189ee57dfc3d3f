"""The axes of charts: the frame of a plot, and where its ticks stand, on numbers and on times."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gatehouse.reports.format import escape, ticks

Point = tuple[float, float]
Tick = tuple[float, str]
Ticks = Callable[[float, float], list[Tick]]

GLYPH = 6.7  # Width of an average character at the charts' font size; errs on the wide side.
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOUR, _DAY = 3600, 86400
_CLOCK = (60, 300, 900, _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 7 * _DAY, 14 * _DAY)
_MONTHS = (1, 2, 3, 6, 12, 24, 60, 120, 600, 1200, 12000)
_DATES = 5  # Most ticks with dates that fit beside each other.


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


def axis_limits(values: Sequence[float], given: Point | None) -> Point:
    """The given limits, or those of the values with a margin; never of zero width."""
    low, high = given or (min(values, default=0.0), max(values, default=1.0))
    if given and high > low:
        return low, high
    margin = (high - low) * 0.05
    if not high - low > max(1e-9 * abs(low), 1e-9 * abs(high), 1e-300):
        margin = abs(high) * 0.05 or 0.5
    return low - margin, high + margin


def number_ticks(low: float, high: float, wanted: int = 5) -> list[Tick]:
    """Round numbers within [low, high], with their labels."""
    raw = (high - low) / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    values = [index * step for index in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return list(zip(values, ticks(values, step), strict=True))


def time_ticks(low: float, high: float) -> list[Tick]:
    """Round times within [low, high], seconds since 1970 in UTC, as clock times, dates, months or years."""
    step = next((one for one in _CLOCK if (high - low) / one < _DATES), None)
    if step is not None:
        values = [float(index * step) for index in range(math.ceil(low / step), math.floor(high / step) + 1)]
        moments = [_EPOCH + timedelta(seconds=value) for value in values]
        return [
            (value, _clock(one, first=at == 0)) for at, (value, one) in enumerate(zip(values, moments, strict=True))
        ]
    first, last = (_EPOCH + timedelta(seconds=value) for value in (low, high))
    months = range(12 * first.year + first.month - 1, 12 * last.year + last.month)
    every = next(one for one in _MONTHS if len(months) / one <= _DATES)
    starts = [
        datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months if month % every == 0 < month // 12
    ]
    form = "%Y" if every >= 12 else "%Y-%m"
    return [(one.timestamp(), one.strftime(form)) for one in starts if first <= one <= last]


def _clock(moment: datetime, first: bool) -> str:
    """The time of day; the first label of an axis has the date too, and at midnight the date stands alone."""
    if moment.hour == moment.minute == 0:
        return f"{moment:%Y-%m-%d}"
    return f"{moment:%Y-%m-%d %H:%M}" if first else f"{moment:%H:%M}"


def left_of(y0: float, y1: float, y_ticks: Ticks = number_ticks) -> float:
    """Where a plot begins, so that the labels of its vertical axis, between y0 and y1, keep off the axis' name."""
    return max(54.0, 30 + 7.0 * max((len(label) for _, label in y_ticks(y0, y1)), default=0))


def drawn_axes(frame: Frame, x: str, y: str, x_ticks: Ticks = number_ticks, y_ticks: Ticks = number_ticks) -> list[str]:
    """Grid, ticks, the floor and the names of both axes, as SVG."""
    lines, parts, taken = [], [], -math.inf
    for tick, label in x_ticks(frame.x0, frame.x1):
        at = frame.x(tick)
        lines.append(f"M{at:.1f},{frame.top:.1f}V{frame.bottom:.1f}")
        # A long label at the right edge would be cut off by the picture's.
        anchor, wide = ("end" if at + 3.5 * len(label) > frame.right + 12 else "middle"), GLYPH * len(label)
        begin = at - wide if anchor == "end" else at - wide / 2
        if begin > taken:
            text = f'<text x="{at:.1f}" y="{frame.bottom + 17:.1f}" text-anchor="{anchor}">{escape(label)}</text>'
            parts.append(text)
            taken = begin + wide
    for tick, label in y_ticks(frame.y0, frame.y1):
        at = frame.y(tick)
        lines.append(f"M{frame.left:.1f},{at:.1f}H{frame.right:.1f}")
        parts.append(f'<text x="{frame.left - 8:.1f}" y="{at + 4:.1f}" text-anchor="end">{escape(label)}</text>')
    across, down = (frame.left + frame.right) / 2, (frame.top + frame.bottom) / 2
    floor = f'x1="{frame.left:.1f}" y1="{frame.bottom:.1f}" x2="{frame.right:.1f}" y2="{frame.bottom:.1f}"'
    places = (f'x="{across:.1f}" y="{frame.bottom + 36:.1f}"', f'transform="translate(13,{down:.1f}) rotate(-90)"')
    names = [
        f'<text class="label" {place} text-anchor="middle">{escape(name)}</text>'
        for place, name in zip(places, (x, y), strict=True)
    ]
    grid = f'<path class="grid" d="{"".join(lines)}"/>'
    return [grid, *parts, f'<line class="axis" {floor}/>', *names]
