"""The columns of a linear model: numbers cut to their bulk and standardised, categories as ones and zeros.

It prepares features on its own, so that a mistake in the candidate's transformation does not weaken both alike.
"""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse

_MOST_VALUES = 256
_TAIL = 0.001
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Standardised:
    """One numeric column: cut to its bulk, missing values replaced by the median and marked, then standardised."""

    name: str
    low: float
    high: float
    median: float
    mean: float
    deviation: float

    @classmethod
    def fit(cls, name: str, values: Floats) -> "Standardised":
        """Fit on the train rows' values, shape (rows,), NaN where missing."""
        known = np.sort(values[np.isfinite(values)])
        if len(known) == 0:
            return cls(name, 0.0, 0.0, 0.0, 0.0, 1.0)
        low, median, high = (float(known[round(q * (len(known) - 1))]) for q in (_TAIL, 0.5, 1 - _TAIL))
        filled = np.where(np.isfinite(values), np.clip(values, low, high), median)
        return cls(name, low, high, median, float(filled.mean()), float(filled.std()) or 1.0)

    def apply(self, values: Floats) -> Floats:
        """From values, shape (rows,), to (rows, 2): the standardised ones, and 1 where a value is missing."""
        known = np.isfinite(values)
        filled = np.where(known, np.clip(values, self.low, self.high), self.median)
        return np.column_stack([(filled - self.mean) / self.deviation, ~known])


@dataclass(frozen=True)
class OneHot:
    """One categorical column: a column for each of its most frequent values; nulls and other values have none."""

    name: str
    values: tuple[str, ...]

    def apply(self, column: pa.ChunkedArray) -> Any:
        """Sparse, shape (rows, values)."""
        found = pc.index_in(pc.cast(column, pa.string()), value_set=pa.array(self.values, pa.string()))
        ids = pc.fill_null(found, -1).to_numpy()
        rows = np.flatnonzero(ids >= 0)
        return sparse.csr_matrix((np.ones(len(rows)), (rows, ids[rows])), shape=(len(ids), len(self.values)))


@dataclass(frozen=True)
class Design:
    """What is done to each column of a table."""

    numeric: tuple[Standardised, ...]
    categorical: tuple[OneHot, ...]

    @classmethod
    def fit(cls, table: pa.Table, numeric: list[str], categorical: list[str]) -> "Design":
        """Fit on the train rows, by the names of their columns."""
        return cls(
            tuple(Standardised.fit(name, _numbers(table[name])) for name in numeric),
            tuple(OneHot(name, _known(table[name])) for name in categorical),
        )

    def matrix(self, table: pa.Table) -> Any:
        """The rows' columns and a last one of ones, sparse, stored by rows, shape (rows, coefficients)."""
        blocks = [sparse.csr_matrix(each.apply(_numbers(table[each.name]))) for each in self.numeric]
        blocks.extend(each.apply(table[each.name]) for each in self.categorical)
        return sparse.hstack([*blocks, sparse.csr_matrix(np.ones((table.num_rows, 1)))], format="csr")

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Design":
        """Rebuild from `to_json`."""
        return cls(
            tuple(Standardised(**column) for column in body["numeric"]),
            tuple(OneHot(column["name"], tuple(column["values"])) for column in body["categorical"]),
        )


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _known(column: pa.ChunkedArray) -> tuple[str, ...]:
    counted = pc.value_counts(pc.drop_null(pc.cast(column, pa.string()))).to_pylist()
    ranked = sorted(counted, key=lambda entry: (-entry["counts"], entry["values"]))
    return tuple(sorted(entry["values"] for entry in ranked[:_MOST_VALUES]))
