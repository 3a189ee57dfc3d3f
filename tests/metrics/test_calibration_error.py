"""Expected calibration error: 0 where probabilities come true, and a share of the rows otherwise."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.calibration_error import calibration_error
from tests.metrics.rows import BINARY


def test_probabilities_that_come_true_have_none() -> None:
    labels = np.array([0] * 500 + [1] * 500)
    assert calibration_error(labels, np.full(1000, 0.5)) == pytest.approx(0.0, abs=1e-9)
    assert calibration_error(labels, np.full(1000, 0.9)) == pytest.approx(0.4)


def test_errors_of_groups_do_not_cancel() -> None:
    labels, probabilities = np.array([0] * 500 + [1] * 500), np.array([0.25] * 500 + [0.75] * 500)
    assert calibration_error(labels, probabilities) == pytest.approx(0.25)


@given(BINARY)
def test_it_is_a_share(rows: tuple[Any, Any]) -> None:
    assert 0 <= calibration_error(*rows) <= 1
