"""Distances: against scipy, by hand, their algebra, and where there is nothing to compare."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import chebyshev, jensenshannon
from scipy.stats import entropy, ks_2samp, wasserstein_distance

from gatehouse.data.distances import (
    jensen_shannon,
    kolmogorov_smirnov,
    kullback_leibler,
    l_infinity,
    mean_shift,
    population_stability,
    spread_ratio,
    wasserstein,
)

Pair = tuple[list[int], list[int]]
SYMMETRIC = (population_stability, jensen_shannon, l_infinity)
DISTANCES = (*SYMMETRIC, kullback_leibler)

pairs = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=12).map(
    lambda bins: ([before for before, _ in bins], [now for _, now in bins])
)


@settings(deadline=None)
@given(pairs)
def test_distances_are_those_of_scipy(pair: Pair) -> None:
    before, now = (np.array(counts, dtype=float) for counts in pair)
    assume(before.any() and now.any())
    p, q = before / before.sum(), now / now.sum()
    assert jensen_shannon(*pair) == pytest.approx(jensenshannon(p, q, base=2) ** 2, abs=1e-9)
    assert l_infinity(*pair) == pytest.approx(chebyshev(p, q), abs=1e-12)
    occupied = (before > 0) | (now > 0)
    p, q = (np.maximum(share[occupied], 1e-4) for share in (p, q))  # scipy scales both to sum to one.
    assert kullback_leibler(*pair) == pytest.approx(entropy(q, p), abs=1e-9)
    assert population_stability(*pair) == pytest.approx(entropy(q, p) + entropy(p, q), abs=1e-9)


@settings(deadline=None)
@given(pairs)
def test_distances_are_bounded_symmetric_and_zero_for_equal_shares(pair: Pair) -> None:
    before, now = pair
    assume(any(before) and any(now))
    for distance in DISTANCES:
        assert distance(before, now) >= 0
        assert distance(before, [3 * count for count in before]) == pytest.approx(0.0, abs=1e-12)
        assert distance([*before, 0], [*now, 0]) == distance(before, now), "a bin that is empty on both sides counts"
    for distance in SYMMETRIC:
        assert distance(before, now) == pytest.approx(distance(now, before), abs=1e-12)
    assert max(jensen_shannon(before, now), l_infinity(before, now)) <= 1


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_side_without_rows_is_at_no_distance(distance: Callable[[list[int], list[int]], float]) -> None:
    assert math.isnan(distance([0, 0], [1, 2]))
    assert math.isnan(distance([1, 2], [0, 0]))
    assert math.isnan(distance([], []))
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        distance([1, 2], [3])


def test_histograms_by_hand() -> None:
    expected = (0.25 - 0.5) * math.log(0.25 / 0.5) + (0.75 - 0.5) * math.log(0.75 / 0.5)
    assert population_stability([50, 50], [25, 75]) == pytest.approx(expected)
    assert jensen_shannon([7, 0], [0, 3]) == l_infinity([7, 0], [0, 3]) == 1
    assert l_infinity([50, 50], [100, 0]) == 0.5


def test_means_and_spreads_by_hand() -> None:
    assert mean_shift(3.0, 1.0, 4.0) == 0.5
    assert mean_shift(3.0, 3.0, 0.0) == 0 and mean_shift(3.0, 4.0, 0.0) == math.inf
    assert math.isnan(mean_shift(None, 1.0, 1.0)) and math.isnan(mean_shift(1.0, None, 1.0))
    assert spread_ratio(2.0, 1.0) == spread_ratio(1.0, 2.0) == 2
    assert spread_ratio(0.0, 0.0) == 1 and spread_ratio(0.0, 1.0) == math.inf
    assert math.isnan(spread_ratio(None, 1.0)) and math.isnan(spread_ratio(1.0, None))


def test_distances_of_numbers_are_those_of_scipy() -> None:
    random = np.random.default_rng(5)
    before, now = random.normal(size=301).round(1), random.normal(0.3, 2, size=170).round(1)
    assert wasserstein(before, now) == pytest.approx(wasserstein_distance(before, now))
    assert kolmogorov_smirnov(before, now) == pytest.approx(ks_2samp(before, now).statistic)
    assert wasserstein(before, before) == kolmogorov_smirnov(now, now) == 0.0
    empty = np.empty(0)
    assert math.isnan(wasserstein(empty, now)) and math.isnan(kolmogorov_smirnov(before, empty))
