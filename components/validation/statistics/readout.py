"""Reads statistics out of what was measured: JSON that the contract, the report and later comparisons use."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.components.validation.statistics import Statistics
from gatehouse.components.validation.statistics.counted import CountedNumbers, CountedTexts
from gatehouse.components.validation.statistics.kinds import Kind, Numbers, time_text
from gatehouse.components.validation.statistics.moments import Moments
from gatehouse.components.validation.statistics.partial import Partial
from gatehouse.components.validation.statistics.plan import Binned, ColumnPlan, ranks
from gatehouse.components.validation.statistics.sketched import SketchedNumbers, SketchedTexts
from gatehouse.components.validation.statistics.texts import Lengths, counts_of_known, extremes_of

BIN_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHOWN_LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOP_VALUES = 50
_FREQUENT = 10
_BARS = 30
_LONGEST_EXTREME = 80
_LONGEST_VALUE = 256


@dataclass(frozen=True)
class Measured:
    """Statistics of one column, and of the same rows in the baseline's bins and values; None where it has none."""

    statistics: Statistics
    rebinned: Statistics | None


def read_out(partial: Partial) -> Measured:
    """Read one column out. The end: its sketches can take in nothing afterwards."""
    plan, values = partial.plan, partial.values
    own: Statistics = {"type": plan.arrow.split("[")[0], "nulls": partial.nulls}
    if values is None:
        if plan.kind is not Kind.OTHER:
            own |= {"distinct": 0, "exact": True}
        return Measured(own | ({"sensitive": True} if plan.sensitive else {}), None)
    exact = isinstance(values, CountedNumbers | CountedTexts)
    own |= {"distinct": len(values.values) if exact else values.distinct, "exact": exact}
    if plan.sensitive:
        return Measured(own | {"sensitive": True}, None)
    if isinstance(values, CountedTexts | SketchedTexts):
        return _texts(own, values, plan)
    if plan.kind is Kind.TRUTH:
        return _truths(own, values, plan)
    if plan.kind is Kind.TIME:
        return Measured(own | _times(_Points.of(values), plan.arrow), None)
    if plan.kind is Kind.REAL:
        own["not_finite"] = partial.not_finite
    return _numbers(own, values, plan)


# Numbers


@dataclass(frozen=True)
class _Points:
    """Ascending finite numbers, the rows that each stands for, and all rows together."""

    values: Numbers
    weights: npt.NDArray[Any]
    rows: int

    @classmethod
    def of(cls, values: Any) -> "_Points":
        if isinstance(values, CountedNumbers):
            return cls(values.values, values.counts, values.rows)
        return cls(*values.points(), values.moments.rows)

    def without_zeros(self) -> "_Points":
        held = self.values != 0
        return _Points(self.values[held], self.weights[held], self.rows - round(float(self.weights[~held].sum())))

    def quantiles(self, levels: Sequence[float]) -> list[Any]:
        """The least value that at least a share `level` of the rows does not exceed, for each level."""
        if not self.rows:
            return []
        reached = np.cumsum(self.weights)
        wanted = np.asarray(levels) * reached[-1] * (1 - 1e-12)
        found: list[Any] = self.values[np.searchsorted(reached, wanted).clip(max=len(reached) - 1)].tolist()
        return found

    def at(self, edges: Sequence[float], side: str) -> npt.NDArray[np.int64]:
        """How many rows are below each edge, or at most each edge (`right`), rounded."""
        return np.rint(ranks(self.values, self.weights, edges, side)).astype(np.int64)


def _numbers(own: Statistics, values: Any, plan: ColumnPlan) -> Measured:
    points = _Points.of(values)
    moments = Moments.of(values) if isinstance(values, CountedNumbers) else values.moments
    others = points.without_zeros()
    edges = sorted({float(edge) for edge in others.quantiles(BIN_LEVELS)})
    own |= {"zeros": points.rows - others.rows, "edges": edges}
    own["counts"] = _between(others.at(edges, "right"), others.rows)
    if points.rows:
        low, high = _extremes(values)
        own |= {"min": low, "max": high, "sum": moments.total, "mean": moments.mean, "std": moments.deviation}
        own |= _quantiles(points)
        own["histogram"] = _histogram(points, low, high, plan.kind)
    if own["exact"] and plan.kind is Kind.WHOLE:
        ranked = sorted(
            zip(values.values.tolist(), values.counts.tolist(), strict=True), key=lambda one: (-one[1], one[0])
        )
        own["frequent"] = [list(pair) for pair in ranked[:_FREQUENT]]
    own = {key: value for key, value in own.items() if value is not None and _is_finite(value)}
    if not plan.edges and not plan.display:
        return Measured(own, None)
    binned = Binned.of(values, plan.edges, plan.display) if isinstance(values, CountedNumbers) else values.binned
    rebinned = own | {"edges": list(plan.edges), "counts": _between(binned.up_to, others.rows)}
    if plan.display:
        rebinned["histogram"] = _bars(plan.display, binned.below, points.rows)
    return Measured(own, rebinned)


def _is_finite(value: Any) -> bool:
    return not isinstance(value, float) or bool(np.isfinite(value))


def _extremes(values: Any) -> tuple[Any, Any]:
    if isinstance(values, SketchedNumbers):
        return values.low, values.high
    return values.values[0].item(), values.values[-1].item()


def _quantiles(points: _Points) -> Statistics:
    found = dict(zip(map(str, SHOWN_LEVELS), points.quantiles(SHOWN_LEVELS), strict=True))
    return {"median": found["0.5"], "quantiles": found}


def _between(up_to: npt.NDArray[np.int64], rows: int) -> list[int]:
    """Rows in each bin, from how many are at most each edge, and how many there are."""
    found: list[int] = np.diff(up_to, prepend=0, append=rows).tolist()
    return found


def _histogram(points: _Points, low: float, high: float, kind: Kind) -> Statistics:
    """Bars of equal width for the eye; a long tail is cut off and counted as `below` or `above`."""
    first, last = points.quantiles((SHOWN_LEVELS[0], SHOWN_LEVELS[-1]))
    if first < last:
        low, high = max(low, first - (last - first) / 4), min(high, last + (last - first) / 4)
    edges = _bar_edges(low, high, kind)
    below = points.at(edges, "left")
    below[-1:] = points.at(edges[-1:], "right")
    return _bars(edges, below, points.rows)


def _bar_edges(low: float, high: float, kind: Kind) -> list[float]:
    if kind is Kind.WHOLE and high - low < 2**50:
        # Bars as wide as a whole number, around whole numbers: others would hold now one more of them, now one less.
        low, high = np.floor(low), np.ceil(high)
        width = max(1, int(np.ceil((high - low + 1) / _BARS)))
        return [float(low - 0.5 + width * bar) for bar in range(int((high - low) // width) + 2)]
    if low == high:
        return [float(low), float(high)]
    edges = low * (1 - np.arange(_BARS + 1) / _BARS) + high * (np.arange(_BARS + 1) / _BARS)
    return sorted(set(edges.tolist()))


def _bars(edges: Sequence[float], below: npt.NDArray[np.int64], rows: int) -> Statistics:
    return {
        "edges": list(edges),
        "counts": np.diff(below).tolist(),
        "below": int(below[0]),
        "above": rows - int(below[-1]),
    }


# Times


def _times(points: _Points, arrow: str) -> Statistics:
    """Extremes, quantiles and a histogram, all as ISO 8601; the moments of a time say nothing."""
    if not points.rows:
        return {}
    low, high = int(points.values[0]), int(points.values[-1])
    bars = _histogram(points, low, high, Kind.TIME)
    bars["edges"] = [time_text(round(edge), arrow) for edge in bars["edges"]]
    found = {level: time_text(round(value), arrow) for level, value in _quantiles(points)["quantiles"].items()}
    extremes = {"min": time_text(low, arrow), "max": time_text(high, arrow)}
    return extremes | {"median": found["0.5"], "quantiles": found, "histogram": bars}


# Truth values and texts


def _truths(own: Statistics, values: CountedNumbers, plan: ColumnPlan) -> Measured:
    counts = {bool(value): int(count) for value, count in zip(values.values, values.counts, strict=True)}
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    own |= {"values": [list(pair) for pair in ranked], "other": 0}
    if plan.known is None:
        return Measured(own, None)
    known = [[value, counts.get(value, 0)] for value in plan.known]
    return Measured(own, own | _listed(known, values.rows))


def _texts(own: Statistics, values: CountedTexts | SketchedTexts, plan: ColumnPlan) -> Measured:
    counted = isinstance(values, CountedTexts)
    if not values.rows:
        known = None if plan.known is None else own | _listed([[value, 0] for value in plan.known], 0)
        return Measured(own | _listed([], 0), known)
    lengths = Lengths.of(values) if counted else values.lengths
    low, high = extremes_of(values.values) if counted else (values.low, values.high)
    own |= {"min": _cut(low), "max": _cut(high)}
    own |= {"min_length": lengths.least, "max_length": lengths.most, "mean_length": lengths.total / values.rows}
    ranked = (values if counted else values.frequent()).ranked(TOP_VALUES)
    own |= _listed([pair for pair in ranked if len(pair[0]) <= _LONGEST_VALUE], values.rows)
    if plan.known is None:
        return Measured(own, None)
    found = counts_of_known(values, plan.known) if counted else values.known
    return Measured(
        own, own | _listed([list(pair) for pair in zip(plan.known, found.tolist(), strict=True)], values.rows)
    )


def _listed(values: list[list[Any]], rows: int) -> Statistics:
    """Some values with their counts, and how many rows have another one."""
    return {"values": values, "other": max(0, rows - sum(count for _, count in values))}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_EXTREME else text[: _LONGEST_EXTREME - 1] + "…"
