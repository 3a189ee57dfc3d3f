"""Mean reciprocal rank: one over the first relevant place, on average over the orders of rows of equal score."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.mean_reciprocal_rank import mean_reciprocal_rank
from tests.metrics.orders import mean_over_orders
from tests.metrics.rows import SMALL_RANKINGS


@given(SMALL_RANKINGS)
def test_it_is_the_mean_over_all_orders(rows: tuple[Any, Any, Any]) -> None:
    expected = mean_over_orders(*rows, lambda relevant: 1 / (relevant.index(True) + 1))
    assert mean_reciprocal_rank(*rows) == pytest.approx(expected, abs=1e-9)


def test_thousands_of_rows_of_equal_score_are_exact() -> None:
    rows = 20_000
    expected = np.mean(1 / np.arange(1, rows + 1))  # One relevant row is at each place in as many orders.
    assert mean_reciprocal_rank(np.eye(1, rows)[0], np.zeros(rows), np.zeros(rows)) == pytest.approx(expected, rel=1e-9)
