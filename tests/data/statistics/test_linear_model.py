"""The linear model: the same numbers on every run, better than chance, and undisturbed by odd values."""

import json
import math
import os
import subprocess
import sys
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
from scipy import sparse
from scipy.special import expit
from sklearn.linear_model import Ridge

from gatehouse.data.statistics.linear_model import LinearModel, fit_least_squares, fit_logistic, logger
from gatehouse.metrics.classification import log_loss
from tests.training.synthetic import CATEGORICAL, NUMERIC, table

TRAIN, TEST = table(2000), table(2000, seed=4)


def labels(rows: pa.Table) -> Any:
    return rows["label"].to_numpy()


@pytest.fixture(scope="module")
def fitted() -> LinearModel:
    return LinearModel.fit("binary", TRAIN, labels(TRAIN), NUMERIC, CATEGORICAL)


def test_it_agrees_with_the_same_model_built_by_sklearn(fitted: LinearModel) -> None:
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    columns = make_column_transformer((numbers, NUMERIC), (OneHotEncoder(), CATEGORICAL))
    model = make_pipeline(columns, LogisticRegression(C=25 / math.sqrt(2000), max_iter=1000))
    model.fit(TRAIN.to_pandas(), labels(TRAIN))
    reference = model.predict_proba(TEST.to_pandas())[:, 1]
    assert np.abs(fitted.predict(TEST) - reference).max() < 0.03


def arithmetics() -> list[dict[str, str]]:
    """Settings under which NumPy and its BLAS calculate on this processor as they do on older ones."""
    kernels = {"Prescott": "SSE3", "Haswell": "AVX2", "SkylakeX": "AVX512_SKX"}
    settings = [{"OPENBLAS_CORETYPE": kernel} for kernel, needed in kernels.items() if __cpu_features__.get(needed)]
    settings[0]["NPY_DISABLE_CPU_FEATURES"] = " ".join(name for name in __cpu_dispatch__ if __cpu_features__.get(name))
    return settings


@pytest.mark.parametrize("settings", arithmetics(), ids=lambda settings: settings["OPENBLAS_CORETYPE"])
def test_the_same_bits_with_other_threads_and_instructions(fitted: LinearModel, settings: dict[str, str]) -> None:
    program = (
        "from tests.data.statistics.test_linear_model import *\n"
        "fitted = LinearModel.fit('binary', TRAIN, labels(TRAIN), NUMERIC, CATEGORICAL)\n"
        "print(json.dumps([fitted.to_json(), fitted.predict(TEST).tolist()]))"
    )
    threads = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2", "PYTHONHASHSEED": "5"}
    environment = os.environ | threads | settings
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    body, scores = json.loads(ended.stdout)
    assert LinearModel.from_json(body) == fitted
    assert scores == fitted.predict(TEST).tolist()


def test_nulls_outliers_and_unseen_values_give_probabilities(fitted: LinearModel) -> None:
    rows = pa.table(
        {
            "distance": [None, 1e300, -1e300, math.nan],
            "wind": [1048.0, None, math.inf, 1.0],
            "delay_rate": [0.5, 0.5, None, 0.5],
            "carrier": ["ÜÄ 航空", None, "", "UA"],
            "origin": ["JFK", None, "XXX", "EWR"],
        }
    )
    scores = fitted.predict(rows)
    assert scores.shape == (4,)
    assert ((scores > 0) & (scores < 1)).all()


def test_several_classes_are_each_told_from_the_rest(fitted: LinearModel) -> None:
    classes = labels(TRAIN) + 2 * (TRAIN["origin"].to_numpy() == "JFK")
    several = LinearModel.fit("multiclass", TRAIN, classes, NUMERIC, CATEGORICAL)
    shares = several.predict(TEST)
    assert shares.shape == (2000, 4) and np.allclose(shares.sum(axis=1), 1)
    truth = labels(TEST) + 2 * (TEST["origin"].to_numpy() == "JFK")
    assert log_loss(truth, shares) < log_loss(
        truth, LinearModel.fit("multiclass", TRAIN, classes, [], []).predict(TEST)
    )
    assert LinearModel.from_json(json.loads(json.dumps(several.to_json()))) == several


def test_a_class_without_train_rows_is_never_likely() -> None:
    shares = LinearModel.fit("multiclass", TRAIN, labels(TRAIN) * 2, NUMERIC, []).predict(TEST)
    assert shares.shape == (2000, 3) and shares[:, 1].max() < 1e-9


@pytest.mark.parametrize("task", ["regression", "ranking"])
def test_numbers_are_told_by_least_squares(task: Any) -> None:
    rows = pa.table({"x": np.arange(1000.0), "carrier": ["AA", "UA"] * 500})
    numbers = 3 * np.arange(1000.0) + np.tile([0.0, 500.0], 500)
    fitted = LinearModel.fit(task, rows, numbers, ["x"], ["carrier"])
    assert np.corrcoef(fitted.predict(rows), numbers)[0, 1] > 0.999


def test_without_columns_it_is_a_constant() -> None:
    constant = LinearModel.fit("binary", TRAIN, labels(TRAIN), [], []).predict(TEST)
    assert np.ptp(constant) == 0 and constant[0] == pytest.approx(labels(TRAIN).mean(), abs=1e-5)
    mean = LinearModel.fit("regression", TRAIN, TRAIN["distance"].to_numpy(), [], []).predict(TEST)
    assert mean[0] == pytest.approx(TRAIN["distance"].to_numpy().mean())


def slope(design: Any, labels: Any, penalty: float, point: Any) -> Any:
    """The gradient of the summed log loss and the penalty, which the intercept does not have."""
    return design.T @ (expit(design @ point) - labels) + np.append(penalty * point[:-1], 0.0)


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 8), st.floats(0.1, 1e3), st.floats(1e-3, 10))
def test_nothing_pulls_at_the_end(seed: int, rows: int, columns: int, penalty: float, scale: float) -> None:
    generator = np.random.default_rng(seed)
    design = np.column_stack([generator.normal(0, scale, (rows, columns)), np.ones(rows)])
    labels = generator.permutation(np.arange(rows) % 2)
    with mock.patch.object(logger, "warning") as warning:
        coefficients = fit_logistic(sparse.csr_matrix(design), labels, penalty)
    assume(not warning.called)  # The next tests are about classes that do not settle.
    assert np.abs(slope(design, labels, penalty, coefficients)).max() <= 1e-4 * rows


def test_a_fit_that_does_not_converge_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    values = np.concatenate([np.linspace(-1e6, -1, 50), np.linspace(1, 1e6, 50)])
    design = sparse.csr_matrix(np.column_stack([values, np.ones(100)]))
    coefficients = fit_logistic(design, values > 0, 1e-9)
    assert np.isfinite(coefficients).all()
    assert "did not converge" in caplog.text


@given(st.integers(0, 2**32), st.integers(2, 60), st.integers(1, 8), st.floats(0.1, 1e3))
def test_least_squares_are_those_of_ridge_regression(seed: int, rows: int, columns: int, penalty: float) -> None:
    generator = np.random.default_rng(seed)
    dense = np.column_stack([generator.normal(size=(rows, columns)), np.ones(rows)])
    labels = generator.normal(size=rows)
    expected = Ridge(alpha=penalty, solver="svd").fit(dense[:, :-1], labels)
    coefficients = fit_least_squares(sparse.csr_matrix(dense), labels, penalty)
    assert coefficients == pytest.approx([*expected.coef_, expected.intercept_], abs=1e-5)
