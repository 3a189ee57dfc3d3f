"""Sketches of what is too varied to be counted: mergeable, small, and off by no more than is stated here.

The sketches are those of tfx-bsl. Each takes a part that was counted already, which is faster than row by row and
avoids what they do to raw values: Kmv writes numbers as text before it hashes them, ten times slower than their bytes;
two of them count NaN as a value.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tfx_bsl.sketches import KmvSketch, MisraGriesSketch, QuantilesSketch  # type: ignore[import-untyped]  # no stubs

from gatehouse.data.statistics.counted import CountedNumbers, CountedTexts, Counts
from gatehouse.data.statistics.kinds import Numbers
from gatehouse.data.statistics.moments import Moments, fast_sum
from gatehouse.data.statistics.plan import Binned, ColumnPlan
from gatehouse.data.statistics.texts import LONGEST_TEXT, Lengths, counts_of_known, extremes_of

# What a quantile may be off by (`RANK_ERROR` in document.py) is what the sketch allows itself, half a step
# between the points that a part is given to it as, and a step between those that are read out.
_SKETCH_ERROR = 0.001
_POINTS = 4_096
_STEPS = 4_000

# The standard error of a count of distinct values is 1 / sqrt(this): 1.6 %.
_HASHES = 4_096

# A text that more than twice this share of the rows have is listed; its count is too high by at most this share.
HEAVY_SHARE = 1 / 4_096

_LONGEST_BYTES = 4 * LONGEST_TEXT
_UNLIMITED = 2**32


class SketchedNumbers:
    """Numbers of one column: exact extremes, zeros, moments and bins of the baseline; sketched quantiles and distinct.

    The quantile sketch holds numbers other than zero, as the bins do.
    """

    def __init__(self, counted: CountedNumbers, plan: ColumnPlan) -> None:
        """Sketch counted numbers, of which there is at least one."""
        values, counts = counted.values, counted.counts
        self.low, self.high = values[0].item(), values[-1].item()
        self.zeros = int(counts[values == 0].sum())
        self.moments = Moments.of(counted, fast_sum)
        self.binned = Binned.of(counted, plan)
        self._distinct = KmvSketch(_HASHES)
        self._distinct.AddValues(_bytes_of(values))
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
        return int(self._distinct.Estimate())

    def points(self) -> tuple[Numbers, Numbers]:
        """Ascending values, shape (points,), and the rows that each stands for, same shape.

        Nothing can be merged afterwards.
        """
        found, cumulated = self._quantiles.GetQuantilesAndCumulativeWeights(_STEPS)
        # Of equal quantiles the last is kept, as its weight is that of all of them.
        values, last = np.unique(found.flatten().to_numpy()[::-1], return_index=True)
        if isinstance(self.low, int):
            # Doubles above 2^53 may round beyond what an int64 holds.
            values = np.array([min(max(int(value), self.low), self.high) for value in values.tolist()], np.int64)
        reached = cumulated.flatten().to_numpy()[::-1][last]
        weights = np.diff(reached, prepend=0.0)
        others = self.moments.rows - self.zeros
        weights *= others / weights.sum() if others else 0.0
        if not self.zeros:
            return values, weights
        at = int(np.searchsorted(values, 0.0))
        return np.insert(values, at, 0), np.insert(weights, at, float(self.zeros))


def _bytes_of(values: Numbers) -> pa.Array:
    """Numbers as texts of their eight bytes, without a copy."""
    offsets = np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(values)])


def _thinned(values: Numbers, counts: Counts) -> tuple[Numbers, Numbers]:
    """At most `_POINTS` of the ascending values, evenly spaced by rank, with the rows that each stands for."""
    if len(values) <= _POINTS:
        return values, counts.astype(np.float64)
    reached = np.cumsum(counts)
    rows = int(reached[-1])
    wanted = (np.arange(_POINTS) + 0.5) * (rows / _POINTS)
    chosen, times = np.unique(np.searchsorted(reached, wanted, side="left"), return_counts=True)
    return values[chosen], times * (rows / _POINTS)


class SketchedTexts:
    """Texts of one column: exact extremes, lengths and rows of the baseline's values; sketched frequent ones, distinct.

    The count of a frequent text is at least the true one, and beyond it by at most `HEAVY_SHARE` of the rows.
    """

    def __init__(self, counted: CountedTexts, plan: ColumnPlan) -> None:
        """Sketch counted texts, of which there is at least one."""
        self.rows = counted.rows
        self.lengths = Lengths.of(counted)
        self.low, self.high = extremes_of(counted.values)
        self.known = counts_of_known(counted, plan.known)
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
        self.known = self.known + other.known
        self._distinct.Merge(other._distinct)
        self._frequent.Merge(other._frequent)

    @property
    def distinct(self) -> int:
        """Estimated number of distinct values."""
        return int(self._distinct.Estimate())

    def frequent(self) -> CountedTexts:
        """Texts that surely more than `HEAVY_SHARE` of the rows have, with their counts."""
        found = self._frequent.Estimate()
        counts = np.floor(found.field(1).to_numpy()).astype(np.int64)
        held = counts > 2 * self.rows * HEAVY_SHARE
        return CountedTexts(found.field(0).cast(pa.large_string()).filter(pa.array(held)), counts[held])
