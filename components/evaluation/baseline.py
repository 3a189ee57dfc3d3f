"""Logistic regression on the candidate's features: what a candidate must beat to be worth its complexity."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from gatehouse.components.training.transformation import Transformation

_ITERATIONS = 60


def design(transformation: Transformation, table: Any) -> Any:
    """The design matrix: standardised numbers and one column a category, sparse, shape (rows, columns)."""
    numbers, ids = transformation.apply(table)
    blocks = [sparse.csr_matrix(numbers.astype(np.float64))]
    for index, column in enumerate(transformation.categorical):
        hot = np.ones(len(ids))
        blocks.append(sparse.csr_matrix((hot, (np.arange(len(ids)), ids[:, index])), shape=(len(ids), column.cardinality)))
    return sparse.hstack(blocks, format="csr")


def fit(matrix: Any, labels: npt.NDArray[Any]) -> tuple[npt.NDArray[np.float64], float]:
    """Coefficients (columns,) and intercept of an L2-regularised logistic regression, the same on every run."""
    model = LogisticRegression(C=1.0, max_iter=_ITERATIONS, solver="lbfgs", tol=1e-5)
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(matrix, labels)
    return model.coef_[0], float(model.intercept_[0])


def predict(matrix: Any, coefficients: npt.NDArray[np.float64], intercept: float) -> npt.NDArray[np.float64]:
    """Probabilities of shape (rows,)."""
    return np.asarray(1.0 / (1.0 + np.exp(-(matrix @ coefficients + intercept))))
