"""The calibration curve: groups of about equal size that hold every row."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.metrics.curves.calibration import calibration
from tests.metrics.rows import BINARY


@given(BINARY, st.integers(1, 30))
def test_groups_are_of_about_equal_size(rows: tuple[Any, Any], bins: int) -> None:
    labels, scores = rows
    predicted, observed, counts = calibration(labels, scores, bins).T
    assert counts.sum() == len(labels)
    assert np.ptp(counts) <= 1
    assert (predicted * counts).sum() == pytest.approx(scores.sum())
    assert (observed * counts).sum() == pytest.approx(labels.sum())
