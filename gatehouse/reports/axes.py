"""The axes of charts: the frame of a plot, and ticks on numbers, logarithms, times and categories."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from markupsafe import escape

from gatehouse.reports.format import shortened, ticks

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
