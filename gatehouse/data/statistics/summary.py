"""What is known of the values of a column in the end, in one form for those that were counted and those sketched."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from gatehouse.data.statistics.counted import CountedNumbers, CountedTexts
from gatehouse.data.statistics.kinds import Numbers
from gatehouse.data.statistics.moments import Moments
from gatehouse.data.statistics.plan import Binned, ColumnPlan, ranks
from gatehouse.data.statistics.sketched import SketchedNumbers, SketchedTexts
from gatehouse.data.statistics.texts import Lengths, counts_of_known, extremes_of


@dataclass(frozen=True)
class Points:
    """Ascending numbers, and how many rows each stands for."""

    values: Numbers
    weights: npt.NDArray[Any]

    def without_zeros(self) -> "Points":
        """The others."""
        held = self.values != 0
        return Points(self.values[held], self.weights[held])

    def quantiles(self, levels: Sequence[float]) -> list[Any]:
        """For each level, the least value that at least this share of the rows does not exceed; none without rows."""
        if not len(self.values):
            return []
        reached = np.cumsum(self.weights)
        # A product such as 0.1 * 30 may come out a hair above the whole number of rows that is meant.
        wanted = np.asarray(levels) * reached[-1] * (1 - 1e-12)
        found: list[Any] = self.values[np.searchsorted(reached, wanted).clip(max=len(reached) - 1)].tolist()
        return found

    def rows_to(self, edges: Sequence[float], side: Literal["left", "right"]) -> npt.NDArray[np.int64]:
        """How many rows are below each edge (`left`), or at most each edge (`right`); shape (edges,)."""
        counts: npt.NDArray[np.int64] = np.rint(ranks(self.values, self.weights, edges, side)).astype(np.int64)
        return counts


@dataclass(frozen=True)
class NumberSummary:
    """Of at least one finite number: how many, distinct, extremes, moments, points, and the baseline's bins."""

    rows: int
    zeros: int
    distinct: int
    exact: bool
    low: Any
    high: Any
    moments: Moments
    points: Points
    binned: Binned

    @classmethod
    def of(cls, found: CountedNumbers | SketchedNumbers, plan: ColumnPlan) -> "NumberSummary":
        """Sum up. Sketches cannot be merged afterwards."""
        if isinstance(found, SketchedNumbers):
            rows, points = found.moments.rows, Points(*found.points())
            distinct = min(found.distinct, rows)
            return cls(rows, found.zeros, distinct, False, found.low, found.high, found.moments, points, found.binned)
        values, counts = found.values, found.counts
        return cls(
            rows=found.rows,
            zeros=int(counts[values == 0].sum()),
            distinct=len(values),
            exact=True,
            low=values[0].item(),
            high=values[-1].item(),
            moments=Moments.of(found),
            points=Points(values, counts),
            binned=Binned.of(found, plan),
        )


@dataclass(frozen=True)
class TextSummary:
    """Of at least one text: how many, distinct, extremes, lengths, frequent ones, and rows of the baseline's values."""

    rows: int
    distinct: int
    exact: bool
    low: str
    high: str
    lengths: Lengths
    frequent: CountedTexts
    known: npt.NDArray[np.int64]

    @classmethod
    def of(cls, found: CountedTexts | SketchedTexts, plan: ColumnPlan) -> "TextSummary":
        """Sum up."""
        if isinstance(found, SketchedTexts):
            rows, distinct = found.rows, min(found.distinct, found.rows)
            return cls(rows, distinct, False, found.low, found.high, found.lengths, found.frequent(), found.known)
        low, high = extremes_of(found.values)
        known = counts_of_known(found, plan.known)
        return cls(found.rows, len(found.values), True, low, high, Lengths.of(found), found, known)
