"""A linear model on the candidate's features, which a candidate must beat to be worth its complexity.

Logistic regression for two classes, one against the rest for several, and least squares for numbers and rankings. It
prepares features on its own, so a mistake in the candidate's transformation does not weaken both.

It is fitted to the same bits on every x86-64 processor and with any number of threads. OpenBLAS has different kernels
for different processors, which add in different orders, so the fit converges far below the digits that are kept
(docs/decisions/logistic-regression-baseline.md). Predictions use neither OpenBLAS nor NumPy's `exp`: SciPy's sparse
products add in the order of the entries, on one thread.
"""

import logging
import math
import warnings
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from scipy import sparse
from scipy.linalg import solve

from gatehouse.metrics.arithmetic import logistic
from gatehouse.metrics.tasks import TASKS, TaskName

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]

_ROOT_ROWS_PER_PENALTY = 25.0
_NEVER = -30.0
"""The margin of a class without train rows."""
_MOST_VALUES = 256
_TAIL = 0.001
_STEPS = 100
_TOLERANCE = 1e-10
_DIGITS = 6


@dataclass(frozen=True)
class LinearModel:
    """A fitted linear model; coefficients of each output (one per class of several, else one), the intercept last."""

    task: TaskName
    design: "Design"
    coefficients: tuple[tuple[float, ...], ...]

    @classmethod
    def fit(
        cls, task: TaskName, table: pa.Table, labels: npt.NDArray[Any], numeric: list[str], categorical: list[str]
    ) -> "LinearModel":
        """Fit on the train rows and their labels, of at least two classes. Without columns it is a constant.

        The L2 penalty is the square root of the rows over 25, so it weighs less with more rows.
        """
        design = Design.fit(table, numeric, categorical)
        rows = design.matrix(table)
        penalty = math.sqrt(table.num_rows) / _ROOT_ROWS_PER_PENALTY
        output = TASKS[task].output
        if output == "probability":
            fitted = [fit_logistic(rows, labels, penalty)]
        elif output == "probabilities":
            hits = [labels == number for number in range(int(labels.max()) + 1)]
            never = np.append(np.zeros(rows.shape[1] - 1), _NEVER)
            fitted = [fit_logistic(rows, hit, penalty) if hit.any() else never for hit in hits]
        else:
            fitted = [fit_least_squares(rows, labels, penalty)]
        return cls(task, design, tuple(tuple(output.tolist()) for output in fitted))

    def predict(self, table: pa.Table) -> Floats:
        """The probability of label 1, or the number, of every row, shape (rows,).

        With several classes the probability of each, normalised to sum to 1, shape (rows, classes).
        """
        margins: Floats = self.design.matrix(table) @ np.array(self.coefficients).T
        output = TASKS[self.task].output
        if output == "probabilities":
            shares = logistic(margins)
            return np.asarray(shares / shares.sum(axis=1, keepdims=True))
        return logistic(margins[:, 0]) if output == "probability" else margins[:, 0]

    def to_json(self) -> dict[str, Any]:
        """The model as JSON."""
        return {"task": self.task, "design": asdict(self.design), "coefficients": self.coefficients}

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> "LinearModel":
        """Rebuild from `to_json`."""
        design = Design(
            tuple(Standardised(**column) for column in body["design"]["numeric"]),
            tuple(OneHot(column["name"], tuple(column["values"])) for column in body["design"]["categorical"]),
        )
        return cls(body["task"], design, tuple(map(tuple, body["coefficients"])))


@dataclass(frozen=True)
class Standardised:
    """One numeric column: clipped, missing values replaced by the median and marked, then standardised."""

    name: str
    low: float
    high: float
    median: float
    mean: float
    deviation: float

    @classmethod
    def fit(cls, name: str, values: Floats) -> "Standardised":
        """Fit on the train rows' values, shape (rows,), NaN where missing."""
        finite = np.sort(values[np.isfinite(values)])
        if len(finite) == 0:
            return cls(name, 0.0, 0.0, 0.0, 0.0, 1.0)
        low, median, high = (float(finite[round(q * (len(finite) - 1))]) for q in (_TAIL, 0.5, 1 - _TAIL))
        filled = np.where(np.isfinite(values), np.clip(values, low, high), median)
        return cls(name, low, high, median, float(filled.mean()), float(filled.std()) or 1.0)

    def apply(self, values: Floats) -> Floats:
        """From values, shape (rows,), to (rows, 2): the standardised ones, and 1 where a value is missing."""
        finite = np.isfinite(values)
        filled = np.where(finite, np.clip(values, self.low, self.high), self.median)
        return np.column_stack([(filled - self.mean) / self.deviation, ~finite])


@dataclass(frozen=True)
class OneHot:
    """One categorical column: an indicator for each of its most frequent values; other values have none."""

    name: str
    values: tuple[str, ...]

    def apply(self, column: pa.ChunkedArray) -> Any:
        """Sparse, shape (rows, values)."""
        indices = pc.index_in(pc.cast(column, pa.string()), value_set=pa.array(self.values, pa.string()))
        ids = pc.fill_null(indices, -1).to_numpy()
        rows = np.flatnonzero(ids >= 0)
        return sparse.csr_matrix((np.ones(len(rows)), (rows, ids[rows])), shape=(len(ids), len(self.values)))


@dataclass(frozen=True)
class Design:
    """The preparation of a table's columns."""

    numeric: tuple[Standardised, ...]
    categorical: tuple[OneHot, ...]

    @classmethod
    def fit(cls, table: pa.Table, numeric: list[str], categorical: list[str]) -> "Design":
        """Fit on the train rows; the lists name their columns."""
        return cls(
            tuple(Standardised.fit(name, _numbers(table[name])) for name in numeric),
            tuple(OneHot(name, _categories(table[name])) for name in categorical),
        )

    def matrix(self, table: pa.Table) -> Any:
        """The prepared columns and a last column of ones, sparse, stored by rows, shape (rows, coefficients)."""
        blocks = [sparse.csr_matrix(column.apply(_numbers(table[column.name]))) for column in self.numeric]
        blocks.extend(column.apply(table[column.name]) for column in self.categorical)
        return sparse.hstack([*blocks, sparse.csr_matrix(np.ones((table.num_rows, 1)))], format="csr")


def _numbers(column: pa.ChunkedArray) -> Floats:
    return np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), dtype=np.float64)


def _categories(column: pa.ChunkedArray) -> tuple[str, ...]:
    counted = pc.value_counts(pc.drop_null(pc.cast(column, pa.string()))).to_pylist()
    ranked = sorted(counted, key=lambda entry: (-entry["counts"], entry["values"]))
    return tuple(sorted(entry["values"] for entry in ranked[:_MOST_VALUES]))


def fit_logistic(design: Any, labels: npt.NDArray[Any], penalty: float) -> Floats:
    """Coefficients that minimise the summed log loss plus half the penalty times squared ones, but the intercept.

    Newton's method converges far below the digits that `rounded` keeps. Both labels, 0 and 1, must occur.

    Args:
        design: Sparse, stored by rows, shape (rows, coefficients); its last column, of ones, is the intercept's.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    if design.shape[1] == 1:
        return rounded(np.array([math.log(labels.mean() / (1 - labels.mean()))]))
    model = LogisticRegression(C=1 / penalty, solver="newton-cholesky", tol=_TOLERANCE, max_iter=_STEPS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(design[:, :-1], np.asarray(labels, bool))
    if any(issubclass(warning.category, ConvergenceWarning) for warning in caught):
        logger.warning("Logistic regression did not converge in %d steps: classes are nearly separable.", _STEPS)
    return rounded(np.append(model.coef_[0], model.intercept_))


def fit_least_squares(design: Any, labels: npt.NDArray[Any], penalty: float) -> Floats:
    """Minimise half of the summed squared errors plus half the penalty times squared coefficients, but the intercept.

    It solves the normal equations; shapes are those of `fit_logistic`.
    """
    penalties = np.append(np.full(design.shape[1] - 1, penalty), 0.0)
    products = (design.T @ design).toarray() + np.diag(penalties)
    return rounded(solve(products, design.T @ labels, assume_a="pos"))


def rounded(coefficients: Floats) -> Floats:
    """Coefficients to seven significant digits of the largest one, which all processors agree on."""
    largest = float(np.abs(coefficients).max())
    digits = _DIGITS - math.floor(math.log10(largest)) if largest else 0
    return np.asarray(np.round(coefficients, digits)) + 0.0  # Without negative zeros.
