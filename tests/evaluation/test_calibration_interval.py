"""Intervals of calibration errors: they hold the truth of a calibrated model and of one that is not."""

from typing import Any

import numpy as np
import pytest

from gatehouse.evaluation.bootstrap import Measured, Units, interval, on_draws
from gatehouse.evaluation.report import estimate
from gatehouse.metrics.classification import calibration_error, calibration_error_debiased
from gatehouse.metrics.metric import all_on_draws
from gatehouse.metrics.tasks import BINARY


def rows(seed: int, off: float) -> tuple[Any, Any]:
    """Labels, and probabilities that are their chances, but for `off`."""
    draw = np.random.default_rng(seed)
    chances = draw.uniform(0.3, 0.7, 400)
    return (draw.random(400) < chances).astype(float), BINARY.read(chances + off, None)


@pytest.mark.parametrize("metric", [calibration_error, calibration_error_debiased])
@pytest.mark.parametrize("off", [0.0, 0.1])
def test_intervals_hold_the_truth_where_percentiles_hold_none(metric: Any, off: float) -> None:
    held = percentiles = 0
    for seed in range(40):
        labels, predictions = rows(seed, off)
        drawn = on_draws([Measured(all_on_draws([metric], labels, predictions))], Units("row", 400), 60, 7)
        low, high = interval(metric, drawn, 400, labels, predictions)
        assert 0 <= low <= high <= 1
        held += low <= off + 1e-9 and off <= high
        percentiles += np.quantile(drawn[:, 0], 0.025) <= off
    assert held >= 35
    assert off or percentiles == 0, "draws are moved by chance twice"


def test_the_interval_of_the_debiased_error_holds_it_and_that_of_the_plain_one_is_not_shown() -> None:
    out = 0
    for seed in range(20):
        labels, predictions = rows(seed, 0.0)
        drawn = on_draws([Measured(all_on_draws([calibration_error], labels, predictions))], Units("row", 400), 60, 7)
        test = interval(calibration_error, drawn, 400, labels, predictions)
        low, high = interval(calibration_error_debiased, drawn, 400, labels, predictions)
        value = calibration_error_debiased.measure(labels, predictions)
        assert low - 1e-12 <= value <= high + 1e-12
        out += not test[0] <= value <= test[1]
    assert out, "the test alone does not hold it"
    assert estimate("calibration_error", 0.0539, (0.0, 0.0083)) == ("0.0539", "n", "")
    assert estimate("calibration_error_debiased", 0.0, (0.0, 0.0083)) == ("0.0000", "n", "0.0000 to 0.0083")


def test_gaps_sum_to_the_error_and_follow_it_on_a_draw() -> None:
    labels, predictions = rows(1, 0.05)
    value, *gaps = all_on_draws([calibration_error], labels, predictions)(np.ones(400))
    assert len(gaps) == calibration_error.groups
    assert value == pytest.approx(np.abs(gaps).sum()) == calibration_error.measure(labels, predictions)
