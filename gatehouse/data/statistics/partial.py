"""Mergeable statistics of the columns of a table, measured file by file on several threads, and read out as JSON.

A partial covers a part of one column. As long as a column has few distinct values they are all kept, and merging is
exact in any order. Beyond that they are sketched. The values alone decide which, not how rows were cut into parts.

The sketches are those of tfx-bsl. Each takes a part that was counted already, which is faster than row by row and
avoids what they do to raw values: Kmv writes numbers as text before it hashes them, ten times slower than their bytes;
two of them count NaN as a value.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch, QuantilesSketch  # type: ignore[import-untyped]  # no stubs

from gatehouse.data.statistics import Statistics
from gatehouse.data.statistics.columns import (
    LONGEST_TEXT,
    ColumnPlan,
    Counted,
    CountedNumbers,
    CountedTexts,
    Counts,
    Kind,
    Numbers,
    NumberSummary,
    TextSummary,
    fast_sum,
    numbers_of,
    ranks,
    time_text,
)
from gatehouse.runtime.limits import processors

# The error of a quantile (`RANK_ERROR` in measurement.py) is the error of the sketch, half a step between the points
# of a part that the sketch gets, and a step between the points that are read out.
_SKETCH_ERROR = 0.001
_POINTS = 4_096
_STEPS = 4_000

# The standard error of a count of distinct values is 1 / sqrt(this): 1.6 %.
_HASHES = 4_096

HEAVY_SHARE = 1 / 4_096
"""A text of more than twice this share of the rows is listed; its count is too high by at most this share."""

_LONGEST_BYTES = 4 * LONGEST_TEXT
_UNLIMITED = 2**32


@dataclass
class SketchedNumbers:
    """Numbers of one column: an exact summary; sketched quantiles of those other than zero, and distinct values."""

    summary: NumberSummary
    hashes: KmvSketch
    quantiles: QuantilesSketch

    @classmethod
    def of(cls, counted: CountedNumbers, plan: ColumnPlan) -> "SketchedNumbers":
        """Sketch counted numbers, at least one."""
        values, counts = counted.values, counted.counts
        hashes, quantiles = KmvSketch(_HASHES), QuantilesSketch(_SKETCH_ERROR, _UNLIMITED, 1)
        # The eight bytes of each number, without a copy.
        offsets = pa.py_buffer(np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32))
        hashes.AddValues(pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(values)]))
        points, weights = _thinned(values[values != 0], counts[values != 0])
        quantiles.AddValues(pa.array(points.astype(np.float64)), pa.array(weights))
        quantiles.Compact()
        return cls(NumberSummary.of(counted, plan, fast_sum), hashes, quantiles)

    def merge(self, other: "SketchedNumbers") -> None:
        """Take in another part of the same column."""
        self.summary = self.summary.merged(other.summary)
        self.hashes.Merge(other.hashes)
        self.quantiles.Merge(other.quantiles)

    @property
    def distinct(self) -> int:
        """Estimated number of distinct values."""
        return min(int(self.hashes.Estimate()), self.summary.moments.rows)

    def points(self) -> tuple[Numbers, Numbers]:
        """Ascending values, shape (points,), and the rows of each, same shape. Nothing can be merged afterwards."""
        quantiles, cumulated = self.quantiles.GetQuantilesAndCumulativeWeights(_STEPS)
        # The last of equal quantiles has the weight of all of them.
        values, last = np.unique(quantiles.flatten().to_numpy()[::-1], return_index=True)
        low, high, zeros = self.summary.low, self.summary.high, self.summary.zeros
        if isinstance(low, int):
            # Doubles above 2^53 may round beyond an int64.
            values = np.array([min(max(int(value), low), high) for value in values.tolist()], np.int64)
        weights = np.diff(cumulated.flatten().to_numpy()[::-1][last], prepend=0.0)
        nonzero = self.summary.moments.rows - zeros
        weights *= nonzero / weights.sum() if nonzero else 0.0
        if not zeros:
            return values, weights
        at = int(np.searchsorted(values, 0.0))
        return np.insert(values, at, 0), np.insert(weights, at, float(zeros))


def _thinned(values: Numbers, counts: Counts) -> tuple[Numbers, Numbers]:
    """At most `_POINTS` of the ascending values, evenly spaced by rank, with the rows of each."""
    if len(values) <= _POINTS:
        return values, counts.astype(np.float64)
    reached = np.cumsum(counts)
    rows = int(reached[-1])
    middles = (np.arange(_POINTS) + 0.5) * (rows / _POINTS)
    chosen, times = np.unique(np.searchsorted(reached, middles, side="left"), return_counts=True)
    return values[chosen], times * (rows / _POINTS)


@dataclass
class SketchedTexts:
    """Texts of one column: an exact summary; sketched frequent texts and distinct ones.

    The count of a frequent text is at least the true one, and above it by at most `HEAVY_SHARE` of the rows.
    """

    summary: TextSummary
    hashes: KmvSketch
    heavy: MisraGriesSketch

    @classmethod
    def of(cls, counted: CountedTexts, plan: ColumnPlan) -> "SketchedTexts":
        """Sketch counted texts, at least one."""
        hashes, heavy = KmvSketch(_HASHES), MisraGriesSketch(round(1 / HEAVY_SHARE))
        hashes.AddValues(counted.values)
        # Long texts are never listed, and thousands of them would fill the memory.
        short = pc.less_equal(pc.binary_length(counted.values), _LONGEST_BYTES)
        heavy.AddValues(counted.values.filter(short), pa.array(counted.counts.astype(np.float32)).filter(short))
        return cls(TextSummary.of(counted, plan), hashes, heavy)

    def merge(self, other: "SketchedTexts") -> None:
        """Take in another part of the same column."""
        self.summary = self.summary.merged(other.summary)
        self.hashes.Merge(other.hashes)
        self.heavy.Merge(other.heavy)

    @property
    def distinct(self) -> int:
        """Estimated number of distinct values."""
        return min(int(self.hashes.Estimate()), self.summary.rows)

    def frequent(self) -> CountedTexts:
        """Texts that surely more than `HEAVY_SHARE` of the rows have, with their counts."""
        estimate = self.heavy.Estimate()
        counts = np.floor(estimate.field(1).to_numpy()).astype(np.int64)
        heavy = counts > 2 * self.summary.rows * HEAVY_SHARE
        return CountedTexts(estimate.field(0).cast(pa.large_string()).filter(pa.array(heavy)), counts[heavy])


Values = CountedNumbers | CountedTexts | SketchedNumbers | SketchedTexts


@dataclass(frozen=True)
class Partial:
    """Statistics of some rows of one column: counts or sketches of its values, None if only nulls are counted.

    `not_finite` rows have NaN or an infinity, which count nowhere else.
    """

    plan: ColumnPlan
    rows: int
    nulls: int
    not_finite: int
    values: Values | None

    @classmethod
    def of(cls, array: pa.Array, plan: ColumnPlan) -> "Partial":
        """Measure a column's values, shape (rows,)."""
        rows, nulls = len(array), array.null_count
        if plan.kind is Kind.OTHER:
            return cls(plan, rows, nulls, 0, None)
        valid = array.drop_null() if nulls else array
        if plan.kind is Kind.TEXT:
            return cls(plan, rows, nulls, 0, _fitting(CountedTexts.of(valid), plan))
        numbers = numbers_of(valid, plan.kind)
        not_finite = 0
        if plan.kind is Kind.REAL:
            finite = np.isfinite(numbers)
            not_finite = len(numbers) - int(np.count_nonzero(finite))
            numbers = numbers[finite] if not_finite else numbers
        return cls(plan, rows, nulls, not_finite, _fitting(CountedNumbers.of(numbers), plan))

    def merged(self, other: "Partial") -> "Partial":
        """Both parts as one. Sketches are taken over, so neither part can be used again."""
        return Partial(
            self.plan,
            self.rows + other.rows,
            self.nulls + other.nulls,
            self.not_finite + other.not_finite,
            _merged(self.values, other.values, self.plan),
        )


def _fitting(values: Any, plan: ColumnPlan) -> Values:
    """Counted values, or a sketch of them if they are too many."""
    return values if values.fits else _sketched(values, plan)


def _sketched(values: Any, plan: ColumnPlan) -> SketchedNumbers | SketchedTexts:
    if isinstance(values, CountedNumbers):
        return SketchedNumbers.of(values, plan)
    return SketchedTexts.of(values, plan) if isinstance(values, CountedTexts) else values


def _merged(left: Any, right: Any, plan: ColumnPlan) -> Values | None:
    """The values of two parts of one column: both have some, or neither."""
    if left is None:
        return None
    counted = isinstance(left, Counted), isinstance(right, Counted)
    if all(counted):
        return _fitting(left.merged(right), plan)
    if counted[0] and not left.rows:
        return cast(Values, right)
    if counted[1] and not right.rows:
        return cast(Values, left)
    sketched: Any = _sketched(left, plan)
    sketched.merge(_sketched(right, plan))
    return cast(Values, sketched)


class OrderedMerge:
    """Merges the parts of one column, given in their order, in a tree that their number alone shapes.

    Two parts merge first, then pairs of pairs, so that only as many partials wait as the tree has levels.
    """

    def __init__(self) -> None:
        self.levels: dict[int, Partial] = {}

    def add(self, partial: Partial) -> None:
        """Take in the next part."""
        level = 0
        while (earlier := self.levels.pop(level, None)) is not None:
            partial, level = earlier.merged(partial), level + 1
        self.levels[level] = partial

    def result(self) -> Partial:
        """All parts as one; there must be at least one."""
        return reduce(
            lambda left, right: left.merged(right), (self.levels[level] for level in sorted(self.levels, reverse=True))
        )


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
    exact = isinstance(values, Counted)
    own |= {"distinct": len(values.values) if isinstance(values, Counted) else values.distinct, "exact": exact}
    if plan.sensitive:
        return ColumnReadout(own, None)
    if isinstance(values, CountedTexts | SketchedTexts):
        return _texts(own, values, plan)
    points = _Points(*values.points())
    if plan.kind is Kind.TRUTH:
        return _truths(own, points, plan)
    summary = values.summary if isinstance(values, SketchedNumbers) else NumberSummary.of(values, plan)
    if plan.kind is Kind.TIME:
        return ColumnReadout(_times(own, summary, points, plan), None)
    return _numbers(own, summary, points, plan)


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


def _numbers(own: Statistics, summary: NumberSummary, points: _Points, plan: ColumnPlan) -> ColumnReadout:
    moments, nonzero_rows = summary.moments, summary.moments.rows - summary.zeros
    nonzero = _Points(points.values[points.values != 0], points.weights[points.values != 0])
    edges = sorted({float(edge) for edge in nonzero.quantiles(BIN_LEVELS)})
    own |= {"min": summary.low, "max": summary.high, "zeros": summary.zeros} | _quantiles(points)
    # Sums of huge numbers may be beyond a double.
    sums = {"sum": moments.total, "mean": moments.mean, "std": moments.deviation}
    own |= {name: value for name, value in sums.items() if value is not None and math.isfinite(value)}
    own |= {"edges": edges, "counts": _between(nonzero.rows_to(edges, "right"), nonzero_rows)}
    own["histogram"] = _histogram(summary, points, plan.kind)
    if own["exact"] and plan.kind is Kind.WHOLE:
        order = np.lexsort((points.values, -points.weights))[:_FREQUENT]
        ranked = zip(points.values[order].tolist(), points.weights[order].tolist(), strict=True)
        own["frequent"] = [list(pair) for pair in ranked]
    if plan.edges is None:
        return ColumnReadout(own, None)
    rebinned = own | {"edges": list(plan.edges), "counts": _between(summary.up_to, nonzero_rows)}
    if plan.display:
        rebinned["histogram"] = _bars(plan.display, summary.below, moments.rows)
    return ColumnReadout(own, rebinned)


def _quantiles(points: _Points) -> Statistics:
    quantiles = dict(zip(map(str, SHOWN_LEVELS), points.quantiles(SHOWN_LEVELS), strict=True))
    return {"median": quantiles["0.5"], "quantiles": quantiles}


def _between(up_to: Counts, rows: int) -> list[int]:
    """Rows in each bin, from the rows up to each edge and all rows."""
    counts: list[int] = np.diff(up_to, prepend=0, append=rows).tolist()
    return counts


def _times(own: Statistics, summary: NumberSummary, points: _Points, plan: ColumnPlan) -> Statistics:
    """Extremes, quantiles and a histogram in ISO 8601."""

    def text(microseconds: float) -> str:
        return time_text(round(microseconds), plan.arrow)

    levels = {level: text(value) for level, value in _quantiles(points)["quantiles"].items()}
    histogram = _histogram(summary, points, plan.kind)
    histogram["edges"] = [text(edge) for edge in histogram["edges"]]
    extremes = {"min": text(summary.low), "max": text(summary.high)}
    return own | extremes | {"median": levels["0.5"], "quantiles": levels, "histogram": histogram}


def _truths(own: Statistics, points: _Points, plan: ColumnPlan) -> ColumnReadout:
    counts = {bool(value): int(count) for value, count in zip(points.values, points.weights, strict=True)}
    ranked, rows = sorted(counts.items(), key=lambda item: (-item[1], item[0])), sum(counts.values())
    own = _listed(own, [list(pair) for pair in ranked], rows)
    if plan.listed is None:
        return ColumnReadout(own, None)
    return ColumnReadout(own, _listed(own, [[value, counts.get(value, 0)] for value in plan.listed], rows))


def _texts(own: Statistics, values: CountedTexts | SketchedTexts, plan: ColumnPlan) -> ColumnReadout:
    if isinstance(values, SketchedTexts):
        summary, frequent = values.summary, values.frequent()
    else:
        summary, frequent = TextSummary.of(values, plan), values
    own |= {"min": _cut(summary.low), "max": _cut(summary.high)}
    own |= {"min_length": summary.shortest, "max_length": summary.longest}
    own["mean_length"] = summary.length / summary.rows
    ranked = [pair for pair in frequent.ranked(TOP_VALUES) if len(pair[0]) <= LONGEST_TEXT]
    own = _listed(own, ranked, summary.rows)
    if plan.listed is None:
        return ColumnReadout(own, None)
    counted = [list(pair) for pair in zip(plan.listed, summary.listed.tolist(), strict=True)]
    return ColumnReadout(own, _listed(own, counted, summary.rows))


def _listed(own: Statistics, values: Sequence[list[Any]], rows: int) -> Statistics:
    """Some values with their counts, and the rows with another value."""
    return own | {"values": list(values), "other": max(0, rows - sum(count for _, count in values))}


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_EXTREME else text[: _LONGEST_EXTREME - 1] + "…"


def _histogram(summary: NumberSummary, points: _Points, kind: Kind) -> Statistics:
    """Bars of equal width for the eye; a long tail is cut off, and counted as `below` or `above`."""
    low, high = summary.low, summary.high
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
    return _bars(edges, below, summary.moments.rows)


def _bars(edges: Sequence[float], below: Counts, rows: int) -> Statistics:
    """A histogram from the rows below each edge, up to the last one, and all rows."""
    counts = np.diff(below).tolist()
    return {"edges": list(edges), "counts": counts, "below": int(below[0]), "above": rows - int(below[-1])}


# Rows of one column that each thread reads at once; fewer if the rows are large.
_ROWS = 131_072
_BYTES = 64 * 2**20


@dataclass(frozen=True)
class MeasuredTable:
    """Statistics by column; and, of columns that the baseline has, in the baseline's bins and values."""

    rows: int
    statistics: Mapping[str, Statistics]
    rebinned: Mapping[str, Statistics]


def plans_of(file: Path, sensitive: Collection[str], baseline: Mapping[str, Statistics]) -> list[ColumnPlan]:
    """The plans of the columns of a table, of which a file has the schema."""
    schema = pq.read_schema(file)
    return [ColumnPlan.of(field, field.name in sensitive, baseline.get(field.name, {})) for field in schema]


def merged_table(files: Iterable[Sequence[Partial]]) -> MeasuredTable:
    """The statistics of a table from the partials of its files, in order."""
    whole: list[OrderedMerge] = []
    for file in files:
        whole = whole or [OrderedMerge() for _ in file]
        for merge, partial in zip(whole, file, strict=True):
            merge.add(partial)
    partials = [merge.result() for merge in whole]
    measured = {partial.plan.name: read_out(partial) for partial in partials}
    return MeasuredTable(
        rows=partials[0].rows if partials else 0,
        statistics={name: column.statistics for name, column in measured.items()},
        rebinned={name: column.rebinned for name, column in measured.items() if column.rebinned is not None},
    )


def measured_files(files: Sequence[Path], plans: Sequence[ColumnPlan], threads: int = 0) -> Iterator[list[Partial]]:
    """The partials of each file, in order, measured on threads, whose number (0: one a core) changes no result."""
    with ThreadPoolExecutor(threads or min(8, processors())) as pool:
        yield from pool.map(lambda file: _measured(file, plans), files)


def _measured(path: Path, plans: Sequence[ColumnPlan]) -> list[Partial]:
    """Measure a file, a column at a time and a slice of it at once, so that memory stays small."""
    texts = [plan.name for plan in plans if plan.kind is Kind.TEXT]
    # Local pages need no buffering ahead, which would only add a copy.
    with pq.ParquetFile(path, memory_map=True, pre_buffer=False, read_dictionary=texts) as file:
        return [_column(file, plan) for plan in plans]


def _column(file: pq.ParquetFile, plan: ColumnPlan) -> Partial:
    whole = OrderedMerge()
    for number in range(file.num_row_groups):
        group, merge = file.metadata.row_group(number), OrderedMerge()
        columns = map(group.column, range(group.num_columns))
        # A nested column, of which only nulls are counted, has another path and no size here.
        size = sum(column.total_uncompressed_size for column in columns if column.path_in_schema == plan.name)
        rows = max(1, min(_ROWS, _BYTES * group.num_rows // max(1, size)))
        for batch in file.iter_batches(rows, row_groups=[number], columns=[plan.name], use_threads=False):
            merge.add(Partial.of(batch.column(plan.name), plan))
        if merge.levels:
            whole.add(merge.result())
    if not whole.levels:
        whole.add(Partial.of(pa.array([], file.schema_arrow.field(plan.name).type), plan))
    return whole.result()
