"""Reads the statistics of a column out of its partial: JSON for the contract, the report and later comparisons."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.columns import (
    LONGEST_TEXT,
    Binned,
    ColumnPlan,
    CountedNumbers,
    CountedTexts,
    Counts,
    Kind,
    Lengths,
    Moments,
    Numbers,
    ranks,
    time_text,
)
from gatehouse.data.statistics.partial import Partial, SketchedNumbers, SketchedTexts

BIN_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHOWN_LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOP_VALUES = 50
_FREQUENT = 10
_LONGEST_EXTREME = 80
_BARS = 30
_BULK = (0.01, 0.99)


@dataclass(frozen=True)
class ColumnReadout:
    """Statistics of one column, and of the same rows in the baseline's bins and values; None if it has none."""

    statistics: Statistics
    rebinned: Statistics | None


@dataclass(frozen=True)
class _Points:
    """Ascending numbers, and the rows of each."""

    values: Numbers
    weights: Numbers

    def without_zeros(self) -> "_Points":
        nonzero = self.values != 0
        return _Points(self.values[nonzero], self.weights[nonzero])

    def quantiles(self, levels: Sequence[float]) -> list[Any]:
        """For each level, the least value that at least this share of the rows does not exceed; empty without rows."""
        if not len(self.values):
            return []
        reached = np.cumsum(self.weights)
        # A product such as 0.1 * 30 may be slightly above the whole number of rows.
        rows = np.asarray(levels) * reached[-1] * (1 - 1e-12)
        quantiles: list[Any] = self.values[np.searchsorted(reached, rows).clip(max=len(reached) - 1)].tolist()
        return quantiles

    def rows_to(self, edges: Sequence[float], side: Literal["left", "right"]) -> Counts:
        """Rows below each edge (`left`), or up to each edge (`right`); shape (edges,)."""
        counts: Counts = np.rint(ranks(self.values, self.weights, edges, side)).astype(np.int64)
        return counts


@dataclass(frozen=True)
class _Numbers:
    """A summary of at least one finite number, counted or sketched."""

    rows: int
    zeros: int
    low: Any
    high: Any
    moments: Moments
    points: _Points
    binned: Binned

    @classmethod
    def of(cls, values: CountedNumbers | SketchedNumbers, plan: ColumnPlan) -> "_Numbers":
        if isinstance(values, SketchedNumbers):
            points = _Points(*values.points())
            moments = values.moments
            return cls(moments.rows, values.zeros, values.low, values.high, moments, points, values.binned)
        numbers, counts = values.values, values.counts
        return cls(
            rows=values.rows,
            zeros=int(counts[numbers == 0].sum()),
            low=numbers[0].item(),
            high=numbers[-1].item(),
            moments=Moments.of(values),
            points=_Points(numbers, counts),
            binned=Binned.of(values, plan),
        )


def read_out(partial: Partial) -> ColumnReadout:
    """Read one column out. Its sketches cannot be merged afterwards."""
    plan, values = partial.plan, partial.values
    own: Statistics = {"type": plan.arrow.split("[")[0], "nulls": partial.nulls}
    if plan.sensitive:
        own["sensitive"] = True
    elif plan.kind is Kind.REAL:
        own["not_finite"] = partial.not_finite
    if values is None:
        return ColumnReadout(own, None)
    if partial.rows == partial.nulls + partial.not_finite:
        return _nothing(own | {"distinct": 0, "exact": True}, plan)
    if isinstance(values, CountedNumbers | CountedTexts):
        own |= {"distinct": len(values.values), "exact": True}
    else:
        own |= {"distinct": values.distinct, "exact": False}
    if plan.sensitive:
        return ColumnReadout(own, None)
    if isinstance(values, CountedTexts | SketchedTexts):
        return _texts(own, values, plan)
    numbers = _Numbers.of(values, plan)
    if plan.kind is Kind.TRUTH:
        return _truths(own, numbers, plan)
    if plan.kind is Kind.TIME:
        return ColumnReadout(_times(own, numbers, plan), None)
    return _numbers(own, numbers, plan)


def _nothing(own: Statistics, plan: ColumnPlan) -> ColumnReadout:
    """A column without any value: its bins and lists are empty, so that it can be compared."""
    if plan.sensitive or plan.kind is Kind.TIME:
        return ColumnReadout(own, None)
    if plan.kind in (Kind.TEXT, Kind.TRUTH):
        rebinned = None if plan.listed is None else _listed(own, [[value, 0] for value in plan.listed], 0)
        return ColumnReadout(_listed(own, [], 0), rebinned)
    own |= {"zeros": 0, "edges": [], "counts": [0]}
    if plan.edges is None:
        return ColumnReadout(own, None)
    return ColumnReadout(own, own | {"edges": list(plan.edges), "counts": [0] * (len(plan.edges) + 1)})


def _numbers(own: Statistics, numbers: _Numbers, plan: ColumnPlan) -> ColumnReadout:
    moments, points = numbers.moments, numbers.points
    nonzero, nonzero_rows = points.without_zeros(), numbers.rows - numbers.zeros
    edges = sorted({float(edge) for edge in nonzero.quantiles(BIN_LEVELS)})
    own |= {"min": numbers.low, "max": numbers.high, "zeros": numbers.zeros} | _quantiles(points)
    # Sums of huge numbers may be beyond a double.
    sums = {"sum": moments.total, "mean": moments.mean, "std": moments.deviation}
    own |= {name: value for name, value in sums.items() if value is not None and math.isfinite(value)}
    own |= {"edges": edges, "counts": _between(nonzero.rows_to(edges, "right"), nonzero_rows)}
    own["histogram"] = _histogram(numbers, plan.kind)
    if own["exact"] and plan.kind is Kind.WHOLE:
        order = np.lexsort((points.values, -points.weights))[:_FREQUENT]
        ranked = zip(points.values[order].tolist(), points.weights[order].tolist(), strict=True)
        own["frequent"] = [list(pair) for pair in ranked]
    if plan.edges is None:
        return ColumnReadout(own, None)
    rebinned = own | {"edges": list(plan.edges), "counts": _between(numbers.binned.up_to, nonzero_rows)}
    if plan.display:
        rebinned["histogram"] = _bars(plan.display, numbers.binned.below, numbers.rows)
    return ColumnReadout(own, rebinned)


def _quantiles(points: _Points) -> Statistics:
    quantiles = dict(zip(map(str, SHOWN_LEVELS), points.quantiles(SHOWN_LEVELS), strict=True))
    return {"median": quantiles["0.5"], "quantiles": quantiles}


def _between(up_to: Counts, rows: int) -> list[int]:
    """Rows in each bin, from the rows up to each edge and all rows."""
    counts: list[int] = np.diff(up_to, prepend=0, append=rows).tolist()
    return counts


def _times(own: Statistics, numbers: _Numbers, plan: ColumnPlan) -> Statistics:
    """Extremes, quantiles and a histogram in ISO 8601."""

    def text(microseconds: float) -> str:
        return time_text(round(microseconds), plan.arrow)

    levels = {level: text(value) for level, value in _quantiles(numbers.points)["quantiles"].items()}
    histogram = _histogram(numbers, plan.kind)
    histogram["edges"] = [text(edge) for edge in histogram["edges"]]
    extremes = {"min": text(numbers.low), "max": text(numbers.high)}
    return own | extremes | {"median": levels["0.5"], "quantiles": levels, "histogram": histogram}


def _truths(own: Statistics, numbers: _Numbers, plan: ColumnPlan) -> ColumnReadout:
    points = numbers.points
    counts = {bool(value): int(count) for value, count in zip(points.values, points.weights, strict=True)}
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    own = _listed(own, [list(pair) for pair in ranked], numbers.rows)
    if plan.listed is None:
        return ColumnReadout(own, None)
    return ColumnReadout(own, _listed(own, [[value, counts.get(value, 0)] for value in plan.listed], numbers.rows))


def _texts(own: Statistics, values: CountedTexts | SketchedTexts, plan: ColumnPlan) -> ColumnReadout:
    if isinstance(values, SketchedTexts):
        low, high, lengths = values.low, values.high, values.lengths
        frequent, rows = values.frequent(), values.listed
    else:
        (low, high), lengths = values.extremes, Lengths.of(values)
        frequent, rows = values, values.rows_of(plan.listed)
    own |= {"min": _cut(low), "max": _cut(high)}
    own |= {"min_length": lengths.least, "max_length": lengths.most, "mean_length": lengths.total / values.rows}
    ranked = [pair for pair in frequent.ranked(TOP_VALUES) if len(pair[0]) <= LONGEST_TEXT]
    own = _listed(own, ranked, values.rows)
    if plan.listed is None:
        return ColumnReadout(own, None)
    counted = [list(pair) for pair in zip(plan.listed, rows.tolist(), strict=True)]
    return ColumnReadout(own, _listed(own, counted, values.rows))


def _listed(own: Statistics, values: Sequence[list[Any]], rows: int) -> Statistics:
    """Some values with their counts, and the rows with another value."""
    return own | {"values": list(values), "other": max(0, rows - sum(count for _, count in values))}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_EXTREME else text[: _LONGEST_EXTREME - 1] + "…"


def _histogram(numbers: _Numbers, kind: Kind) -> Statistics:
    """Bars of equal width for the eye; a long tail is cut off, and counted as `below` or `above`."""
    low, high, points = numbers.low, numbers.high, numbers.points
    first, last = points.quantiles(_BULK)
    if first < last:
        low, high = max(low, first - (last - first) / 4), min(high, last + (last - first) / 4)
    if kind is Kind.WHOLE and high - low < 2**50:
        # Bars as wide as one or several whole numbers, so that all bars hold the same number of them.
        width = max(1, math.ceil((high - low + 1) / _BARS))
        edges = [math.floor(low) - 0.5 + width * bar for bar in range(int(high - math.floor(low)) // width + 2)]
    else:
        shares = np.arange(_BARS + 1) / _BARS
        # Not low + share * (high - low), because the difference of two doubles may be beyond the largest.
        edges = sorted(set((float(low) * (1 - shares) + float(high) * shares).tolist()))
        edges = edges if len(edges) > 1 else edges * 2
    below = points.rows_to(edges, "left")
    below[-1:] = points.rows_to(edges[-1:], "right")
    return _bars(edges, below, numbers.rows)


def _bars(edges: Sequence[float], below: Counts, rows: int) -> Statistics:
    """A histogram from the rows below each edge, up to the last one, and all rows."""
    counts = np.diff(below).tolist()
    return {"edges": list(edges), "counts": counts, "below": int(below[0]), "above": rows - int(below[-1])}
