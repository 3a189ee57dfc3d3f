"""How far one column has moved between the train rows and the current ones, and between parts of the train rows."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.components.distances.jensen_shannon import jensen_shannon
from gatehouse.components.distances.population_stability import population_stability

_MISSING = "\0missing"
_DIGITS = 9
Numbers = npt.NDArray[np.int64]
"""Of a bin or of a block of time, one for each row."""


@dataclass(frozen=True)
class NumericBins:
    """Bins of a number: one for missing (or not finite), one for zero, and between quantiles of the rest.

    Without the zero bin, the quantiles of a feature that is mostly zero (precipitation) collapse into one, and the
    index is blind.
    """

    edges: npt.NDArray[np.float64]

    @classmethod
    def fit(cls, values: pa.ChunkedArray, bins: int) -> "NumericBins":
        """Quantile edges of the finite values other than zero."""
        numbers = _numbers(values)
        known = numbers[np.isfinite(numbers) & (numbers != 0)]
        inner = np.linspace(0, 1, bins + 1)[1:-1]
        return cls(np.unique(np.quantile(known, inner)) if len(known) else np.empty(0))

    @property
    def names(self) -> list[str]:
        """Name of each bin."""
        edges = ["-∞", *(f"{edge:.6g}" for edge in self.edges), "∞"]
        return ["missing", "zero", *(f"{low} to {high}" for low, high in pairwise(edges))]

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of the bin of every row, shape (rows,)."""
        numbers = _numbers(values)
        inner = np.searchsorted(self.edges, numbers, side="right") + 2
        return np.where(~np.isfinite(numbers), 0, np.where(numbers == 0, 1, inner)).astype(np.int64)


@dataclass(frozen=True)
class CategoryBins:
    """Bins of a category: one for missing, one for all rare or new values, and one for each frequent value."""

    values: tuple[str, ...]

    @classmethod
    def fit(cls, values: pa.ChunkedArray, categories: int) -> "CategoryBins":
        """The most frequent values, of equals the first by name."""
        counted = pc.value_counts(_texts(values)).to_pylist()
        ranked = sorted((-item["counts"], item["values"]) for item in counted if item["values"] != _MISSING)
        return cls(tuple(sorted(name for _, name in ranked[:categories])))

    @property
    def names(self) -> list[str]:
        """Name of each bin."""
        return ["missing", "other", *self.values]

    def place(self, values: pa.ChunkedArray) -> Numbers:
        """Number of the bin of every row, shape (rows,)."""
        texts = _texts(values)
        codes = pc.fill_null(pc.index_in(texts, value_set=pa.array(self.values, pa.string())), -1).to_numpy()
        missing = pc.equal(texts, _MISSING).to_numpy(zero_copy_only=False)
        return np.where(missing, 0, codes + 2).astype(np.int64)


@dataclass(frozen=True)
class Drift:
    """How far one column moved.

    Attributes:
        psi: Population stability index of the current rows against all train rows.
        divergence: Jensen-Shannon divergence of the same, in bits.
        seasonal: The largest PSI of any block of the train rows against the rest of them; 0 where there are no blocks.
    """

    psi: float
    divergence: float
    seasonal: float


def drift_of(
    bins: NumericBins | CategoryBins, trained: pa.ChunkedArray, blocks: Numbers, current: pa.ChunkedArray
) -> Drift:
    """Measure one column.

    Args:
        bins: Fitted on the train rows.
        trained: The column in the train rows.
        blocks: Number of the block of every train row, from 0, shape (train rows,); -1 for rows in no block.
        current: The column in the current rows.
    """
    size = len(bins.names)
    placed = bins.place(trained)
    everything = np.bincount(placed, minlength=size)
    found = np.bincount(bins.place(current), minlength=size)
    count = int(blocks.max(initial=-1)) + 1
    inside = blocks >= 0
    table = np.bincount(blocks[inside] * size + placed[inside], minlength=count * size).reshape(count, size)
    seasonal = max((population_stability(everything - block, block) for block in table), default=0.0)
    return Drift(
        round(population_stability(everything, found), _DIGITS),
        round(jensen_shannon(everything, found), _DIGITS),
        round(seasonal, _DIGITS),
    )


def blocks_of(moments: npt.NDArray[np.datetime64], span: np.timedelta64, min_rows: int) -> Numbers:
    """Cut rows into consecutive blocks of time as long as `span`.

    Args:
        moments: When each row was decided, shape (rows,).
        span: Length of a block.
        min_rows: Rows of smaller blocks are in none.

    Returns:
        Number of each row's block, from 0 without holes; -1 for none. All -1 where there are fewer than two blocks, for
        one block has nothing to differ from.
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


def _numbers(values: pa.ChunkedArray) -> npt.NDArray[np.float64]:
    plain = pc.cast(values, pa.int8()) if pa.types.is_boolean(values.type) else values
    numbers: npt.NDArray[Any] = pc.cast(plain, pa.float64(), safe=False).to_numpy()
    return numbers


def _texts(values: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(pc.cast(values, pa.string()), _MISSING)
