"""Precision at K: the share of relevant rows in the first places, on average over the orders of rows of equal score."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gatehouse.metrics.catalogue.metric import Metric
from gatehouse.metrics.precision_at_1 import precision_at_1
from gatehouse.metrics.precision_at_5 import precision_at_5
from gatehouse.metrics.precision_at_10 import precision_at_10
from tests.metrics.orders import mean_over_orders
from tests.metrics.rows import SMALL_RANKINGS

PLACES = pytest.mark.parametrize(("metric", "most"), [(precision_at_1, 1), (precision_at_5, 5), (precision_at_10, 10)])


@PLACES
@given(SMALL_RANKINGS)
def test_it_is_the_mean_over_all_orders(metric: Metric, most: int, rows: tuple[Any, Any, Any]) -> None:
    expected = mean_over_orders(*rows, lambda relevant: sum(relevant[:most]) / most)
    assert metric(*rows) == pytest.approx(expected, abs=1e-9)


@PLACES
def test_places_beyond_it_do_not_count(metric: Metric, most: int) -> None:
    labels, scores = np.zeros(20), -np.arange(20.0)
    labels[: most + 3] = 1
    assert metric(labels, scores, np.zeros(20)) == 1.0
    assert metric(labels[::-1], scores, np.zeros(20)) == pytest.approx(max(0, 2 * most + 3 - 20) / most)


def test_a_group_of_fewer_rows_cannot_reach_1() -> None:
    assert precision_at_5(np.ones(2), np.arange(2.0), np.zeros(2)) == pytest.approx(0.4)
