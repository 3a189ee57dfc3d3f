"""The debiased calibration error: as by sampling, near 0 where probabilities come true, unchanged where rows abound."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.calibration_error import calibration_error
from gatehouse.metrics.calibration_error_debiased import calibration_error_debiased
from gatehouse.metrics.curves.calibration import calibration
from tests.metrics.rows import BINARY


def test_it_is_what_the_authors_draw() -> None:
    draw = np.random.default_rng(3)
    probabilities = draw.uniform(0.05, 0.6, 2000)
    labels = (draw.random(2000) < probabilities**1.2).astype(np.float64)
    predicted, observed, counts = calibration(labels, probabilities, 20).T
    rates = draw.normal(observed, np.sqrt(observed * (1 - observed) / counts), (200_000, 20))
    again = np.sum(np.abs(predicted - rates) * counts, axis=1).mean() / counts.sum()
    plain = calibration_error(labels, probabilities)
    assert calibration_error_debiased(labels, probabilities) == pytest.approx(2 * plain - again, abs=1e-4)


def test_probabilities_that_come_true_have_less_of_it_than_of_the_plain_one() -> None:
    draw = np.random.default_rng(4)
    plain, debiased = [], []
    for _ in range(30):
        probabilities = draw.uniform(0, 1, 400)
        labels = (draw.random(400) < probabilities).astype(np.float64)
        plain.append(calibration_error(labels, probabilities))
        debiased.append(calibration_error_debiased(labels, probabilities))
    assert np.mean(debiased) < np.mean(plain) * 0.7


def test_many_rows_leave_it_as_it_is() -> None:
    labels = np.array([0] * 50_000 + [1] * 50_000)
    assert calibration_error_debiased(labels, np.full(100_000, 0.9)) == pytest.approx(0.4, abs=1e-6)


@given(BINARY)
def test_it_is_a_share(rows: tuple[Any, Any]) -> None:
    assert 0 <= calibration_error_debiased(*rows) <= 1
