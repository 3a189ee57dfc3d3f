"""Bins of a column, and blocks of time: rows are counted in them before a distance is computed."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MISSING = "\0missing"
Numbers = npt.NDArray[np.int64]
"""Numbers of bins or of blocks of time, one per row."""


@dataclass(frozen=True)
class NumericBins:
    """Bins of a numeric column: one for missing or non-finite values, one for zero, and quantile bins for the rest.

    Without the zero bin, all quantiles of a feature that is mostly zero (precipitation) would be equal, and drift would
    not show.
    """

    edges: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, values: pa.ChunkedArray, bins: int) -> "NumericBins":
        """Compute quantile edges of the finite values other than zero, from values of shape (rows,)."""
        numbers = numbers_of(values)
        known = numbers[np.isfinite(numbers) & (numbers != 0)]
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        return cls(np.unique(np.quantile(known, inner)) if len(known) else np.empty(0))

    @property
    def names(self) -> list[str]:
        """Name of each bin."""
        edges = ["-∞", *(f"{edge:.6g}" for edge in self.edges), "∞"]
        return ["missing", "zero", *(f"{low} to {high}" for low, high in pairwise(edges))]

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of each row's bin, shape (rows,)."""
        numbers = numbers_of(values)
        inner = np.searchsorted(self.edges, numbers, side="right") + 2
        return np.where(~np.isfinite(numbers), 0, np.where(numbers == 0, 1, inner)).astype(np.int64)


@dataclass(frozen=True)
class CategoryBins:
    """Bins of a categorical column: one for missing, one for all rare or new values, one for each frequent value."""

    values: tuple[str, ...]

    @classmethod
    def fit(cls, values: pa.ChunkedArray, categories: int) -> "CategoryBins":
        """Take the `categories` most frequent values of a column of shape (rows,); ties are sorted by name."""
        counted = pc.value_counts(_texts(values)).to_pylist()
        ranked = sorted((-item["counts"], item["values"]) for item in counted if item["values"] != _MISSING)
        return cls(tuple(sorted(name for _, name in ranked[:categories])))

    @property
    def names(self) -> list[str]:
        """Name of each bin."""
        return ["missing", "other", *self.values]

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of each row's bin, shape (rows,)."""
        texts = _texts(values)
        codes = pc.fill_null(pc.index_in(texts, value_set=pa.array(self.values, pa.string())), -1).to_numpy()
        missing = pc.equal(texts, _MISSING).to_numpy(zero_copy_only=False)
        return np.where(missing, 0, codes + 2).astype(np.int64)


def blocks_of(moments: npt.NDArray[np.datetime64], span: np.timedelta64, min_rows: int) -> Numbers:
    """Cut rows into consecutive blocks of time as long as `span`.

    Args:
        moments: When each row was decided, shape (rows,).
        span: Length of a block.
        min_rows: Rows of blocks with fewer rows get no block.

    Returns:
        Number of each row's block, from 0 without gaps; -1 for none. All are -1 if there are fewer than two blocks, as
        one block cannot be compared.
    """
    none = np.full(len(moments), -1, dtype=np.int64)
    if len(moments) == 0 or span <= np.timedelta64(0, "us"):
        return none
    raw = ((moments - moments.min()) // span).astype(np.int64)
    kept = np.flatnonzero(np.bincount(raw) >= min_rows)
    if len(kept) < 2:
        return none
    numbers = np.full(int(raw.max()) + 1, -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    found: Numbers = numbers[raw]
    return found


def numbers_of(values: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    """A column as numbers, shape (rows,); missing values are NaN."""
    plain = pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values
    numbers: npt.NDArray[Any] = pc.cast(plain, pa.float64(), safe=False).to_numpy()
    return numbers


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(values, pa.string()), _MISSING)
