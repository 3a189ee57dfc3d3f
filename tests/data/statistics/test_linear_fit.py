"""The fits of linear models: at the minimum, whatever the data."""

from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import expit

from gatehouse.data.statistics.linear_model import cholesky, fit_least_squares, fit_logistic, logger, solve


def slope(design: Any, labels: Any, penalties: Any, point: Any) -> Any:
    """The gradient, summed by BLAS and calculated with NumPy's own exp."""
    dense = design.toarray()
    return dense.T @ (expit(dense @ point) - labels) + penalties * point


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 8), st.floats(0.1, 1e3), st.floats(1e-3, 10))
def test_nothing_pulls_at_the_end(seed: int, rows: int, columns: int, penalty: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    dense = np.column_stack([generator.normal(0, scale, (rows, columns)), np.ones(rows)])
    labels = generator.permutation(np.arange(rows) % 2)
    design, penalties = sparse.csr_matrix(dense), np.append(np.full(columns, penalty), 0.0)
    with mock.patch.object(logger, "warning") as told:
        found = fit_logistic(design, labels, penalties)
    assume(not told.called)  # The next tests are about classes that do not settle.
    assert np.abs(slope(design, labels, penalties, found)).max() <= 1.1e-6 * rows


def test_separable_classes_are_held_by_the_penalty() -> None:
    values = np.concatenate([np.linspace(-4, -1, 50), np.linspace(1, 4, 50)])
    design = sparse.csr_matrix(np.column_stack([values, np.ones(100)]))
    labels, penalties = (values > 0).astype(np.int8), np.array([1.0, 0.0])
    found = fit_logistic(design, labels, penalties)
    assert 1 < found[0] < 5
    assert np.abs(slope(design, labels, penalties, found)).max() <= 1.1e-4


def test_a_fit_that_does_not_converge_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    values = np.concatenate([np.linspace(-1e6, -1, 50), np.linspace(1, 1e6, 50)])
    found = fit_logistic(sparse.csr_matrix(values[:, None]), values > 0, np.array([1e-9]))
    assert np.isfinite(found).all()
    assert "did not converge" in caplog.text


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_the_solution_solves(seed: int, size: int) -> None:
    root = np.random.default_rng(seed).normal(size=(size, size))
    matrix, wanted = root @ root.T + np.eye(size), root[0]
    assert np.allclose(matrix @ solve(cholesky(matrix), wanted), wanted)


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 8), st.floats(0.1, 1e3))
def test_least_squares_are_those_of_ridge_regression(seed: int, rows: int, columns: int, penalty: float) -> None:
    generator = np.random.default_rng(seed)
    dense = np.column_stack([generator.normal(size=(rows, columns)), np.ones(rows)])
    labels, penalties = generator.normal(size=rows), np.append(np.full(columns, penalty), 0.0)
    expected = np.linalg.solve(dense.T @ dense + np.diag(penalties), dense.T @ labels)
    assert fit_least_squares(sparse.csr_matrix(dense), labels, penalties) == pytest.approx(expected, abs=1e-9)
