"""Mergeable statistics of a part of one column: all distinct values with their counts, or sketches of them.

As long as a column has few distinct values they are all kept, and merging is exact in any order. Beyond that they are
sketched. The values alone decide which, not how rows were cut into parts.

The sketches are those of tfx-bsl. Each takes a part that was counted already, which is faster than row by row and
avoids what they do to raw values: Kmv writes numbers as text before it hashes them, ten times slower than their bytes;
two of them count NaN as a value.
"""

from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch, QuantilesSketch  # type: ignore[import-untyped]  # no stubs

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
    fast_sum,
    numbers_of,
)

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


class SketchedNumbers:
    """Numbers of one column: exact extremes, zeros, moments and bins of the baseline; sketched quantiles and distinct.

    The quantile sketch holds numbers other than zero, as the bins do.
    """

    def __init__(self, counted: CountedNumbers, plan: ColumnPlan) -> None:
        values, counts = counted.values, counted.counts
        self.low, self.high = values[0].item(), values[-1].item()
        self.zeros = int(counts[values == 0].sum())
        self.moments = Moments.of(counted, fast_sum)
        self.binned = Binned.of(counted, plan)
        self._distinct = KmvSketch(_HASHES)
        # The eight bytes of each number, without a copy.
        offsets = pa.py_buffer(np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32))
        self._distinct.AddValues(pa.Array.from_buffers(pa.binary(), len(values), [None, offsets, pa.py_buffer(values)]))
        self._quantiles = QuantilesSketch(_SKETCH_ERROR, _UNLIMITED, 1)
        points, weights = _thinned(values[values != 0], counts[values != 0])
        self._quantiles.AddValues(pa.array(points.astype(np.float64)), pa.array(weights))
        self._quantiles.Compact()

    def merge(self, other: "SketchedNumbers") -> None:
        """Take in another part of the same column."""
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.zeros += other.zeros
        self.moments = self.moments.merged(other.moments)
        self.binned = self.binned.merged(other.binned)
        self._distinct.Merge(other._distinct)
        self._quantiles.Merge(other._quantiles)

    @property
    def distinct(self) -> int:
        """Estimated number of distinct values."""
        return min(int(self._distinct.Estimate()), self.moments.rows)

    def points(self) -> tuple[Numbers, Numbers]:
        """Ascending values, shape (points,), and the rows of each, same shape. Nothing can be merged afterwards."""
        quantiles, cumulated = self._quantiles.GetQuantilesAndCumulativeWeights(_STEPS)
        # The last of equal quantiles has the weight of all of them.
        values, last = np.unique(quantiles.flatten().to_numpy()[::-1], return_index=True)
        if isinstance(self.low, int):
            # Doubles above 2^53 may round beyond an int64.
            values = np.array([min(max(int(value), self.low), self.high) for value in values.tolist()], np.int64)
        weights = np.diff(cumulated.flatten().to_numpy()[::-1][last], prepend=0.0)
        nonzero = self.moments.rows - self.zeros
        weights *= nonzero / weights.sum() if nonzero else 0.0
        if not self.zeros:
            return values, weights
        at = int(np.searchsorted(values, 0.0))
        return np.insert(values, at, 0), np.insert(weights, at, float(self.zeros))


def _thinned(values: Numbers, counts: Counts) -> tuple[Numbers, Numbers]:
    """At most `_POINTS` of the ascending values, evenly spaced by rank, with the rows of each."""
    if len(values) <= _POINTS:
        return values, counts.astype(np.float64)
    reached = np.cumsum(counts)
    rows = int(reached[-1])
    middles = (np.arange(_POINTS) + 0.5) * (rows / _POINTS)
    chosen, times = np.unique(np.searchsorted(reached, middles, side="left"), return_counts=True)
    return values[chosen], times * (rows / _POINTS)


class SketchedTexts:
    """Texts of one column: exact extremes, lengths and rows of the baseline's values; sketched frequent and distinct.

    The count of a frequent text is at least the true one, and above it by at most `HEAVY_SHARE` of the rows.
    """

    def __init__(self, counted: CountedTexts, plan: ColumnPlan) -> None:
        self.rows = counted.rows
        self.lengths = Lengths.of(counted)
        self.low, self.high = counted.extremes
        self.listed = counted.rows_of(plan.listed)
        self._distinct = KmvSketch(_HASHES)
        self._distinct.AddValues(counted.values)
        self._frequent = MisraGriesSketch(round(1 / HEAVY_SHARE))
        # Long texts are never listed, and thousands of them would fill the memory.
        short = pc.less_equal(pc.binary_length(counted.values), _LONGEST_BYTES)
        self._frequent.AddValues(
            counted.values.filter(short), pa.array(counted.counts.astype(np.float32)).filter(short)
        )

    def merge(self, other: "SketchedTexts") -> None:
        """Take in another part of the same column."""
        self.rows += other.rows
        self.lengths = self.lengths.merged(other.lengths)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.listed = self.listed + other.listed
        self._distinct.Merge(other._distinct)
        self._frequent.Merge(other._frequent)

    @property
    def distinct(self) -> int:
        """Estimated number of distinct values."""
        return min(int(self._distinct.Estimate()), self.rows)

    def frequent(self) -> CountedTexts:
        """Texts that surely more than `HEAVY_SHARE` of the rows have, with their counts."""
        estimate = self._frequent.Estimate()
        counts = np.floor(estimate.field(1).to_numpy()).astype(np.int64)
        heavy = counts > 2 * self.rows * HEAVY_SHARE
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


def _fitting(counted: CountedNumbers | CountedTexts, plan: ColumnPlan) -> Values:
    if counted.fits:
        return counted
    return SketchedNumbers(counted, plan) if isinstance(counted, CountedNumbers) else SketchedTexts(counted, plan)


def _merged(left: Values | None, right: Values | None, plan: ColumnPlan) -> Values | None:
    if isinstance(left, CountedNumbers) and isinstance(right, CountedNumbers):
        return _fitting(left.merged(right), plan)
    if isinstance(left, CountedTexts) and isinstance(right, CountedTexts):
        return _fitting(left.merged(right), plan)
    left, right = _sketched(left, plan), _sketched(right, plan)
    if isinstance(left, SketchedNumbers) and isinstance(right, SketchedNumbers):
        left.merge(right)
    if isinstance(left, SketchedTexts) and isinstance(right, SketchedTexts):
        left.merge(right)
    return left or right


def _sketched(values: Values | None, plan: ColumnPlan) -> SketchedNumbers | SketchedTexts | None:
    """Values as sketches; None without values."""
    if isinstance(values, CountedNumbers):
        return SketchedNumbers(values, plan) if len(values.values) else None
    if isinstance(values, CountedTexts):
        return SketchedTexts(values, plan) if len(values.values) else None
    return values


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
