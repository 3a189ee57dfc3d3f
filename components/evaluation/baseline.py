"""Logistic regression on the candidate's features: what a candidate must beat to be worth its complexity.

It prepares features on its own, so that a mistake in the candidate's transformation does not weaken both alike.
"""

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

_ITERATIONS = 100
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
        """Fit on the train rows' values, NaN where missing."""
        known = np.sort(values[np.isfinite(values)])
        if len(known) == 0:
            return cls(name, 0.0, 0.0, 0.0, 0.0, 1.0)
        low, median, high = (float(known[round(q * (len(known) - 1))]) for q in (_TAIL, 0.5, 1 - _TAIL))
        filled = np.where(np.isfinite(values), np.clip(values, low, high), median)
        return cls(name, low, high, median, float(filled.mean()), float(filled.std()) or 1.0)

    def apply(self, values: Floats) -> Floats:
        """Two columns: the standardised values, and 1 where a value is missing."""
        known = np.isfinite(values)
        filled = np.where(known, np.clip(values, self.low, self.high), self.median)
        return np.column_stack([(filled - self.mean) / self.deviation, ~known])


@dataclass(frozen=True)
class OneHot:
    """One categorical column: a column a value seen in training; nulls and unseen values have none."""

    name: str
    values: tuple[str, ...]

    def apply(self, column: pa.ChunkedArray) -> Any:
        """Sparse, shape (rows, values)."""
        found = pc.index_in(pc.cast(column, pa.string()), value_set=pa.array(self.values, pa.string()))
        ids = pc.fill_null(found, -1).to_numpy()
        rows = np.flatnonzero(ids >= 0)
        return sparse.csr_matrix((np.ones(len(rows)), (rows, ids[rows])), shape=(len(ids), len(self.values)))


@dataclass(frozen=True)
class Baseline:
    """A fitted logistic regression, with what it does to each column before."""

    numeric: tuple[Standardised, ...]
    categorical: tuple[OneHot, ...]
    coefficients: tuple[float, ...]
    intercept: float

    @classmethod
    def fit(cls, table: pa.Table, labels: npt.NDArray[Any], numeric: list[str], categorical: list[str]) -> "Baseline":
        """Fit on a table, with L2 regularisation, one thread and a fixed start: the same numbers on every run.

        Args:
            table: The train rows.
            labels: 0 or 1, shape (rows,); both must occur.
            numeric: Names of the numeric columns.
            categorical: Names of the others.
        """
        prepared = cls(
            tuple(Standardised.fit(name, _numbers(table[name])) for name in numeric),
            tuple(OneHot(name, _known(table[name])) for name in categorical),
            (),
            0.0,
        )
        model = LogisticRegression(C=1.0, max_iter=_ITERATIONS, solver="lbfgs", tol=1e-4)
        with warnings.catch_warnings(), threadpool_limits(limits=1):
            # The limit on iterations is part of what the baseline is: more of them change nothing visible.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(prepared.design(table), labels)
        coefficients = tuple(float(value) for value in model.coef_[0])
        return cls(prepared.numeric, prepared.categorical, coefficients, float(model.intercept_[0]))

    def design(self, table: pa.Table) -> Any:
        """The design matrix, sparse, shape (rows, coefficients)."""
        blocks = [sparse.csr_matrix(each.apply(_numbers(table[each.name]))) for each in self.numeric]
        blocks.extend(each.apply(table[each.name]) for each in self.categorical)
        return sparse.hstack(blocks, format="csr") if blocks else sparse.csr_matrix((table.num_rows, 0))

    def predict(self, table: pa.Table) -> Floats:
        """Probability of the positive label for every row, in order, shape (rows,)."""
        margins = self.design(table) @ np.array(self.coefficients) + self.intercept
        return np.asarray(1.0 / (1.0 + np.exp(-np.clip(margins, -700, 700))))

    def to_json(self) -> dict[str, Any]:
        """As plain JSON, for `baseline.json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "Baseline":
        """Rebuild from `to_json`."""
        return cls(
            tuple(Standardised(**column) for column in body["numeric"]),
            tuple(OneHot(column["name"], tuple(column["values"])) for column in body["categorical"]),
            tuple(body["coefficients"]),
            body["intercept"],
        )


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _known(column: pa.ChunkedArray) -> tuple[str, ...]:
    values = pc.unique(pc.cast(column, pa.string())).to_pylist()
    return tuple(sorted(value for value in values if value is not None))
