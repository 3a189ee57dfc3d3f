"""Comparisons with a look every hour: an A/A test rings rarely, a loss is found, and wrong shares are noticed."""

import math

import numpy as np
import pytest

from gatehouse.metrics.metric import Array
from gatehouse.metrics.sequential import half_width, ratio_evidence

LOOKS, PER_LOOK, ALPHA = 336, 10, 0.05
"""Two weeks of hours, and the units of an hour."""


def _looks(tests: int, share: float, loss: float, seed: int) -> tuple[Array, Array]:
    """Whether the interval of canary - champion leaves out 0, and lies above it, shape (tests, looks)."""
    draw, units = np.random.default_rng(seed), LOOKS * PER_LOOK
    canary = draw.random((tests, units)) < share
    values = draw.exponential(0.4, (tests, units)) + loss * canary
    weights = np.where(canary, 1 / share, -1 / (1 - share))
    at = np.arange(PER_LOOK, units + 1, PER_LOOK) - 1
    number, level = at + 1.0, np.cumsum(values, 1)[:, at] / (at + 1.0)
    moments = [np.cumsum(weights**power * values**degree, 1)[:, at] for power, degree in ((1, 1), (1, 0))]
    squares = [np.cumsum(weights**2 * values**degree, 1)[:, at] for degree in (2, 1, 0)]
    mean = (moments[0] - level * moments[1]) / number
    spread = np.sqrt((squares[0] - 2 * level * squares[1] + level**2 * squares[2]) / number - mean**2)
    half = half_width(spread, np.broadcast_to(number, spread.shape), ALPHA, 2000)
    begun = np.cumsum(canary, 1)[:, at] >= 50
    return begun & (np.abs(mean) > half), begun & (mean > half)


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_a_test_of_equals_rings_in_at_most_a_twentieth_of_a_thousand_tests(share: float) -> None:
    rings = sum(_looks(100, share, 0.0, seed)[0].any(1).sum() for seed in range(10))
    assert rings <= 50


def test_a_planted_loss_is_found() -> None:
    assert _looks(100, 0.2, 0.15, 1)[1].any(1).mean() > 0.95


def test_the_width_is_that_of_the_formula_and_shrinks() -> None:
    widths = half_width(1.0, np.array([1, 2, 100, 10_000, 1_000_000]), 0.05, 1000)
    assert widths[0] == math.inf and (np.diff(widths[1:]) < 0).all()
    rho = (-2 * math.log(0.05) + math.log(1 - 2 * math.log(0.05))) / 1000
    grown = 100 * rho + 1
    assert widths[2] == pytest.approx(math.sqrt(grown / (100**2 * rho) * math.log(grown / 0.05**2)))
    tuned = [half_width(1.0, 1000, 0.05, at) for at in (10, 1000, 100_000)]
    assert tuned[1] == min(tuned)


def test_right_shares_ring_rarely_and_wrong_ones_are_noticed() -> None:
    draw = np.random.default_rng(0)

    def rings(true: float) -> float:
        inside = np.cumsum(draw.random((200, 4000)) < true, 1)[:, 199::200]
        return sum(
            any(ratio_evidence([(0.1, int(count), 200 * look)]) > math.log(20) for look, count in enumerate(test, 1))
            for test in inside
        ) / len(inside)

    assert rings(0.1) <= 0.05 and rings(0.15) > 0.95
    both = ratio_evidence([(0.1, 130, 1000), (0.5, 560, 1000)])
    assert both == pytest.approx(ratio_evidence([(0.1, 130, 1000)]) + ratio_evidence([(0.5, 560, 1000)]))
