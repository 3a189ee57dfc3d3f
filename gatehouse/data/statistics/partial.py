"""Statistics of a part of one column, before they are read out: what is measured, and how two parts become one.

As long as a column has few distinct values they are all kept with their counts, and merging is exact in any order.
Beyond that they are sketched. Which of the two holds depends on the values alone, not on how rows were cut into parts.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from gatehouse.data.statistics.counted import CountedNumbers, CountedTexts
from gatehouse.data.statistics.kinds import Kind, numbers_of
from gatehouse.data.statistics.plan import ColumnPlan
from gatehouse.data.statistics.sketched import SketchedNumbers, SketchedTexts

Values = CountedNumbers | CountedTexts | SketchedNumbers | SketchedTexts


@dataclass(frozen=True)
class Partial:
    """Statistics of some rows of one column.

    Attributes:
        plan: What is wanted of the column.
        rows: All rows.
        nulls: Rows without a value.
        not_finite: Rows with NaN or an infinity, which have no part in anything below.
        values: Counts or sketches of the rest; None for a kind of which only nulls are counted.
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
        held = array.drop_null() if nulls else array
        if plan.kind is Kind.TEXT:
            return cls(plan, rows, nulls, 0, _fitting(CountedTexts.of(held), plan))
        numbers = numbers_of(held, plan.kind)
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


def _merged(one: Values | None, other: Values | None, plan: ColumnPlan) -> Values | None:
    if isinstance(one, CountedNumbers) and isinstance(other, CountedNumbers):
        return _fitting(one.merged(other), plan)
    if isinstance(one, CountedTexts) and isinstance(other, CountedTexts):
        return _fitting(one.merged(other), plan)
    one, other = _sketched(one, plan), _sketched(other, plan)
    if isinstance(one, SketchedNumbers) and isinstance(other, SketchedNumbers):
        one.merge(other)
    if isinstance(one, SketchedTexts) and isinstance(other, SketchedTexts):
        one.merge(other)
    return one or other


def _sketched(values: Values | None, plan: ColumnPlan) -> SketchedNumbers | SketchedTexts | None:
    """Values as sketches; None where there are no values."""
    if isinstance(values, CountedNumbers):
        return SketchedNumbers(values, plan) if len(values.values) else None
    if isinstance(values, CountedTexts):
        return SketchedTexts(values, plan) if len(values.values) else None
    return values
