"""Reads statistics out of what was measured: JSON that the contract, the report and later comparisons use."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.counted import CountedTexts
from gatehouse.data.statistics.histogram import bars, histogram
from gatehouse.data.statistics.kinds import Kind, time_text
from gatehouse.data.statistics.partial import Partial
from gatehouse.data.statistics.plan import ColumnPlan
from gatehouse.data.statistics.sketched import SketchedTexts
from gatehouse.data.statistics.summary import NumberSummary, Points, TextSummary
from gatehouse.data.statistics.texts import LONGEST_TEXT

BIN_LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SHOWN_LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
TOP_VALUES = 50
_FREQUENT = 10
_LONGEST_EXTREME = 80


@dataclass(frozen=True)
class Measured:
    """Statistics of one column, and of the same rows in the baseline's bins and values; None where it has none."""

    statistics: Statistics
    rebinned: Statistics | None


def read_out(partial: Partial) -> Measured:
    """Read one column out. Its sketches cannot be merged afterwards."""
    plan, values = partial.plan, partial.values
    own: Statistics = {"type": plan.arrow.split("[")[0], "nulls": partial.nulls}
    if plan.sensitive:
        own["sensitive"] = True
    elif plan.kind is Kind.REAL:
        own["not_finite"] = partial.not_finite
    if values is None:
        return Measured(own, None)
    if partial.rows == partial.nulls + partial.not_finite:
        return _nothing(own | {"distinct": 0, "exact": True}, plan)
    if isinstance(values, CountedTexts | SketchedTexts):
        texts = TextSummary.of(values, plan)
        own |= {"distinct": texts.distinct, "exact": texts.exact}
        return Measured(own, None) if plan.sensitive else _texts(own, texts, plan)
    numbers = NumberSummary.of(values, plan)
    own |= {"distinct": numbers.distinct, "exact": numbers.exact}
    if plan.sensitive:
        return Measured(own, None)
    if plan.kind is Kind.TRUTH:
        return _truths(own, numbers, plan)
    return Measured(_times(own, numbers, plan), None) if plan.kind is Kind.TIME else _numbers(own, numbers, plan)


def _nothing(own: Statistics, plan: ColumnPlan) -> Measured:
    """A column without any value: it has bins and lists that are empty, so that it can be compared."""
    if plan.sensitive or plan.kind is Kind.TIME:
        return Measured(own, None)
    if plan.kind in (Kind.TEXT, Kind.TRUTH):
        own = _listed(own, [], 0)
        known = plan.known
        return Measured(own, None if known is None else _listed(own, [[value, 0] for value in known], 0))
    own |= {"zeros": 0, "edges": [], "counts": [0]}
    if plan.edges is None:
        return Measured(own, None)
    return Measured(own, own | {"edges": list(plan.edges), "counts": [0] * (len(plan.edges) + 1)})


def _numbers(own: Statistics, found: NumberSummary, plan: ColumnPlan) -> Measured:
    moments, others, held = found.moments, found.points.without_zeros(), found.rows - found.zeros
    edges = sorted({float(edge) for edge in others.quantiles(BIN_LEVELS)})
    own |= {"min": found.low, "max": found.high, "zeros": found.zeros} | _quantiles(found.points)
    # Sums of huge numbers may be beyond what a double holds.
    sums = {"sum": moments.total, "mean": moments.mean, "std": moments.deviation}
    own |= {name: value for name, value in sums.items() if value is not None and math.isfinite(value)}
    own |= {"edges": edges, "counts": _between(others.rows_to(edges, "right"), held)}
    own["histogram"] = histogram(found.points, found.low, found.high, found.rows, plan.kind)
    if found.exact and plan.kind is Kind.WHOLE:
        own["frequent"] = _frequent(found.points)
    if plan.edges is None:
        return Measured(own, None)
    rebinned = own | {"edges": list(plan.edges), "counts": _between(found.binned.up_to, held)}
    if plan.display:
        rebinned["histogram"] = bars(plan.display, found.binned.below, found.rows)
    return Measured(own, rebinned)


def _quantiles(points: Points) -> Statistics:
    found = dict(zip(map(str, SHOWN_LEVELS), points.quantiles(SHOWN_LEVELS), strict=True))
    return {"median": found["0.5"], "quantiles": found}


def _between(up_to: npt.NDArray[np.int64], rows: int) -> list[int]:
    """Rows in each bin, from how many are at most each edge, and how many there are."""
    counts: list[int] = np.diff(up_to, prepend=0, append=rows).tolist()
    return counts


def _frequent(points: Points) -> list[list[int]]:
    order = np.lexsort((points.values, -points.weights))[:_FREQUENT]
    return [list(pair) for pair in zip(points.values[order].tolist(), points.weights[order].tolist(), strict=True)]


def _times(own: Statistics, found: NumberSummary, plan: ColumnPlan) -> Statistics:
    """Extremes, quantiles and a histogram in ISO 8601; sums of times say nothing."""

    def text(microseconds: float) -> str:
        return time_text(round(microseconds), plan.arrow)

    levels = {level: text(value) for level, value in _quantiles(found.points)["quantiles"].items()}
    drawn = histogram(found.points, found.low, found.high, found.rows, plan.kind)
    drawn["edges"] = [text(edge) for edge in drawn["edges"]]
    extremes = {"min": text(found.low), "max": text(found.high)}
    return own | extremes | {"median": levels["0.5"], "quantiles": levels, "histogram": drawn}


def _truths(own: Statistics, found: NumberSummary, plan: ColumnPlan) -> Measured:
    counts = {bool(value): int(count) for value, count in zip(found.points.values, found.points.weights, strict=True)}
    ranked = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    own = _listed(own, [list(pair) for pair in ranked], found.rows)
    if plan.known is None:
        return Measured(own, None)
    return Measured(own, _listed(own, [[value, counts.get(value, 0)] for value in plan.known], found.rows))


def _texts(own: Statistics, found: TextSummary, plan: ColumnPlan) -> Measured:
    lengths = found.lengths
    own |= {"min": _cut(found.low), "max": _cut(found.high)}
    own |= {"min_length": lengths.least, "max_length": lengths.most, "mean_length": lengths.total / found.rows}
    ranked = found.frequent.ranked(TOP_VALUES)
    own = _listed(own, [pair for pair in ranked if len(pair[0]) <= LONGEST_TEXT], found.rows)
    if plan.known is None:
        return Measured(own, None)
    known = [list(pair) for pair in zip(plan.known, found.known.tolist(), strict=True)]
    return Measured(own, _listed(own, known, found.rows))


def _listed(own: Statistics, values: Sequence[list[object]], rows: int) -> Statistics:
    """Some values with their counts, and how many rows have another one."""
    listed = sum(count for _, count in values if isinstance(count, int))
    return own | {"values": list(values), "other": max(0, rows - listed)}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_EXTREME else text[: _LONGEST_EXTREME - 1] + "…"
