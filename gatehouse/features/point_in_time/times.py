"""Times as 64-bit integers: microseconds since 1970 in UTC, or nanoseconds where a column has them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers = npt.NDArray[np.int64]
Truths = npt.NDArray[np.bool_]
NEVER = np.iinfo(np.int64).min
"""The value of a null."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Times:
    """Times of rows.

    Attributes:
        ticks: Ticks since 1970 in UTC, shape (rows,); `NEVER` for a null.
        fine: Whether a tick is a nanosecond and not a microsecond.
    """

    ticks: Integers
    fine: bool = False

    def refined(self) -> Integers:
        """Ticks in nanoseconds, shape (rows,). Times outside the years 1677 to 2262 become the nearest possible one."""
        if self.fine:
            return self.ticks
        bound = np.iinfo(np.int64).max // 1000
        return np.where(self.ticks == NEVER, NEVER, np.clip(self.ticks, -bound, bound) * 1000)

    def take(self, rows: Integers) -> "Times":
        """The times of the rows with these numbers; shape (rows taken,)."""
        return Times(self.ticks[rows], self.fine)


def times_of(column: pa.ChunkedArray) -> Times:
    """The times of a column of timestamps or dates, shape (rows,); a time without a zone is UTC."""
    if not pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"))
    ticks, per_second = int64_of(column.cast(pa.int64())), _PER_SECOND[column.type.unit]
    null = ticks == NEVER
    if per_second == 10**9 and (ticks[~null] % 1000).any():
        return Times(ticks, fine=True)
    if per_second == 10**6:
        return Times(ticks)
    scaled = ticks // 1000 if per_second == 10**9 else ticks * (10**6 // per_second)
    return Times(unless(null, scaled, NEVER))


def int64_of(column: pa.ChunkedArray | pa.Array, null: int = NEVER) -> Integers:
    """A column of integers as an array of shape (rows,), with nulls replaced by `null`."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [np.asarray(chunk.fill_null(null).to_numpy(zero_copy_only=False)) for chunk in chunks]
    return np.concatenate([*parts, np.empty(0, np.int64)], dtype=np.int64)


def unless(wrong: Truths, values: Integers, others: Integers | int) -> Integers:
    """`values`, replaced by `others` where `wrong` is true; shapes (rows,). Nothing is copied if none is wrong."""
    return np.where(wrong, others, values) if wrong.any() else values
