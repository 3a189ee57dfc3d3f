"""Fits linear models to the same bits on every x86-64 processor and with any number of threads.

OpenBLAS has other kernels for other processors, which add in another order, and NumPy's `exp` has other last digits
with AVX-512. Neither is used here. NumPy's elementwise arithmetic is right to the last bit with any instruction set,
its `sum` has one order, and SciPy's sparse products add in the order of the entries, on one thread.
"""

import logging
from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.metrics.arithmetic.elementary import logistic

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float64]

_STEPS = 500
_TOLERANCE = 1e-6


def fit_logistic(design: Any, labels: npt.NDArray[Any], penalties: Floats) -> Floats:
    """Minimise the summed log loss plus half of penalties times squared coefficients.

    Newton's method with a quarter of the design's inner products in place of the second derivative, which is nowhere
    larger: every step makes the sum smaller, and the matrix is factorised once (Bohning and Lindsay 1988). It ends
    where no component of the gradient is above 1e-6 a row.

    Args:
        design: Sparse, stored by rows, shape (rows, coefficients).
        labels: 0 or 1, shape (rows,); both must occur.
        penalties: Of each coefficient, from 0, shape (coefficients,).

    Returns:
        The coefficients, shape (coefficients,).
    """
    across = design.T.tocsr()
    factor = cholesky((across @ design).toarray() / 4 + np.diag(penalties))
    point = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        gradient = across @ (logistic(design @ point) - labels) + penalties * point
        if np.abs(gradient).max() <= _TOLERANCE * len(labels):
            return point
        point = point - solve(factor, gradient)
    logger.warning("Logistic regression has not settled after %d steps: classes are nearly separable.", _STEPS)
    return point


def fit_least_squares(design: Any, labels: npt.NDArray[Any], penalties: Floats) -> Floats:
    """Minimise half of the summed squared errors plus half of penalties times squared coefficients.

    The normal equations are solved once.

    Args:
        design: Sparse, stored by rows, shape (rows, coefficients).
        labels: Numbers, shape (rows,).
        penalties: Of each coefficient, from 0, shape (coefficients,).

    Returns:
        The coefficients, shape (coefficients,).
    """
    across = design.T.tocsr()
    return solve(cholesky((across @ design).toarray() + np.diag(penalties)), across @ labels)


def cholesky(matrix: Floats) -> Floats:
    """The lower triangle whose product with its transpose is a positive definite `matrix`, shape (size, size)."""
    factor = np.tril(matrix)
    for index in range(len(factor)):
        factor[index:, index] /= np.sqrt(factor[index, index])
        below = factor[index + 1 :, index]
        factor[index + 1 :, index + 1 :] -= np.tril(below[:, None] * below)
    return factor


def solve(factor: Floats, wanted: Floats) -> Floats:
    """The x with `factor @ factor.T @ x = wanted`, shape (size,); `factor` is lower triangular, shape (size, size)."""
    found = wanted.copy()
    for index in range(len(found)):
        found[index] /= factor[index, index]
        found[index + 1 :] -= factor[index + 1 :, index] * found[index]
    for index in reversed(range(len(found))):
        found[index] /= factor[index, index]
        found[:index] -= factor[index, :index] * found[index]
    return found
