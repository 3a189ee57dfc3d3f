"""Pinball loss: as scikit-learn has it, smallest at the quantile that it is of."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from sklearn import metrics as sklearn

from gatehouse.metrics.catalogue.metric import Metric
from gatehouse.metrics.pinball_p10 import pinball_p10
from gatehouse.metrics.pinball_p90 import pinball_p90
from tests.metrics.rows import NUMBERS

QUANTILES = pytest.mark.parametrize(("metric", "quantile"), [(pinball_p10, 0.1), (pinball_p90, 0.9)])


@QUANTILES
@given(NUMBERS)
def test_it_agrees_with_sklearn(metric: Metric, quantile: float, rows: tuple[Any, Any]) -> None:
    assert metric(*rows) == pytest.approx(sklearn.mean_pinball_loss(*rows, alpha=quantile), rel=1e-9, abs=1e-9)


@QUANTILES
def test_no_constant_is_better_than_the_quantile(metric: Metric, quantile: float) -> None:
    labels = np.random.default_rng(3).normal(size=1001)
    least = metric(labels, np.full(1001, np.quantile(labels, quantile)))
    assert all(metric(labels, np.full(1001, value)) >= least for value in np.linspace(-3, 3, 61))
