"""The shape of a column: bars to draw of its rows, and of the baseline's over the same axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from gatehouse.reports.charts import Bin

Statistics = Mapping[str, Any]

# If a larger share of the rows is outside the baseline's bars, a column is drawn in bars of its own.
_MOST_OUTSIDE = 0.02
_LEAST_SPAN = 1e-290


@dataclass(frozen=True)
class Shape:
    """What is drawn.

    Attributes:
        own: Bars of this snapshot; their area is the share of the rows, so that bars of another width compare.
        baseline: Bars of the baseline; empty for none.
        limits: Ends of the axis.
        ends: What stands at the ends of the axis; empty where it has numbers.
        outside: Share of this snapshot's rows that are beyond the axis.
    """

    own: tuple[Bin, ...]
    baseline: tuple[Bin, ...]
    limits: tuple[float, float]
    ends: tuple[str, ...]
    outside: float


def shape_of(own: Statistics, rebinned: Statistics | None, baseline: Statistics | None) -> Shape | None:
    """The shape of a column; None where its statistics hold no histogram, or one of a single value.

    Args:
        own: Its statistics.
        rebinned: The same rows counted in the baseline's bars, None for no baseline.
        baseline: The baseline's statistics of it, None for no baseline.
    """
    mine, shared, before = (_bars_of(one) for one in (own, rebinned, baseline))
    if mine is None:
        return None
    # In the same bars, a difference is one of the rows and not of the bars.
    drawn = shared if before and shared and _outside(shared) <= _MOST_OUTSIDE else mine
    # Two periods of time lie beside each other, which says nothing.
    is_time = isinstance(drawn["edges"][0], str)
    bins, others = _bins(drawn), _bins(before) if before and not is_time else ()
    if not bins:
        # Times so close together that they are one in seconds.
        return None
    limits = min(one.low for one in (*bins, *others)), max(one.high for one in (*bins, *others))
    if not _LEAST_SPAN < limits[1] - limits[0] < 1 / _LEAST_SPAN:
        # At the ends of what a double can hold there is no axis to draw.
        return None
    ends = tuple(drawn["edges"][at][:10] for at in (0, -1)) if is_time else ()
    return Shape(bins, others, limits, ends, _outside(drawn))


def _bars_of(found: Statistics | None) -> Mapping[str, Any] | None:
    bars: Mapping[str, Any] | None = (found or {}).get("histogram")
    return bars if bars and len(bars["edges"]) > 2 and _rows(bars) > 0 else None


def _rows(bars: Mapping[str, Any]) -> int:
    return int(sum(bars["counts"]) + bars["below"] + bars["above"])


def _outside(bars: Mapping[str, Any]) -> float:
    return float(bars["below"] + bars["above"]) / _rows(bars)


def _bins(bars: Mapping[str, Any]) -> tuple[Bin, ...]:
    edges, rows = _numbers(bars["edges"]), _rows(bars)
    pairs = zip(edges, edges[1:], bars["counts"], strict=False)
    return tuple(Bin(low, high, count / rows / (high - low)) for low, high, count in pairs if high > low)


def _numbers(edges: Sequence[Any]) -> list[float]:
    """Edges as numbers: times as seconds since 1970; none where a time is beyond the years that Python knows."""
    if not isinstance(edges[0], str):
        return [float(edge) for edge in edges]
    try:
        times = [datetime.fromisoformat(edge) for edge in edges]
    except ValueError:
        return []
    return [(time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() for time in times]
