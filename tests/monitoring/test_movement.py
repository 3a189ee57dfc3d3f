"""How far columns move: their bins, blocks of time, seasons, and the test that counts dependent rows at their worth."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from gatehouse.monitoring.movement import (
    CategoryBins,
    NumericBins,
    blocks_of,
    chi_square,
    corrected,
    mean_error,
    movement,
)

RANDOM = np.random.default_rng(3)
EDGES = 1.28 * np.array([-1.28, -0.84, -0.52, -0.25, 0, 0.25, 0.52, 0.84, 1.28])


def _column(values: Sequence[float | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.float64())])


def _names(values: Sequence[str | None]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(values, pa.string())])


values = st.lists(st.one_of(st.none(), st.sampled_from([0.0, 1.0, -2.5, math.nan, math.inf]), st.floats(-9, 9)))


@settings(deadline=None)
@given(values, values, st.integers(2, 20))
def test_histograms_of_parts_add_up_to_the_histogram_of_all(
    first: list[float | None], second: list[float | None], count: int
) -> None:
    bins = NumericBins.fit(_column(first + second), count)
    parts = [np.bincount(bins.place(_column(part)), minlength=bins.size) for part in (first, second, first + second)]
    assert (parts[0] + parts[1] == parts[2]).all()
    assert parts[2].sum() == len(first) + len(second) and len(parts[2]) == bins.size


def test_a_feature_that_is_mostly_zero_is_seen_to_move() -> None:
    dry = _column([0.0] * 97 + [0.1, 0.2, 0.3])
    wet = _column([0.0] * 70 + [0.1, 0.2, 0.3] * 10)
    none = np.full(100, -1)
    assert movement(NumericBins.fit(dry, 10), dry, none, wet, "psi", None).distances["psi"] > 0.25


def test_missing_zero_rare_and_new_values_have_bins_of_their_own() -> None:
    numbers = NumericBins.fit(_column([1.0, 2.0, 3.0]), 2)
    assert numbers.size == 4
    assert list(numbers.place(_column([None, math.nan, math.inf, 0.0, 1.0, 2.0, 9.0]))) == [0, 0, 0, 1, 2, 3, 3]
    names = CategoryBins.fit(_names(["AA", "AA", "UA", "UA", "B6", None]), 2)
    assert (names.values, names.size) == (("AA", "UA"), 4)
    assert list(names.place(_names(["UA", None, "B6", "ZZ", "AA"]))) == [3, 0, 1, 1, 2]
    assert CategoryBins.fit(pa.chunked_array([pa.array([5, 6, 6], pa.int8())]), 9).values == ("5", "6")


def _hours(count: int) -> "np.ndarray[tuple[int], np.dtype[np.datetime64]]":
    return np.datetime64("2013-01-01", "us") + np.arange(count) * np.timedelta64(1, "h")


def test_blocks_are_as_long_as_asked_and_small_ones_do_not_count() -> None:
    blocks = blocks_of(_hours(100), np.timedelta64(48, "h"), min_rows=10)
    assert list(np.unique(blocks, return_counts=True)[1]) == [4, 48, 48]
    assert list(blocks[:48]) == [0] * 48 and list(blocks[96:]) == [-1] * 4
    for span in (0, 1000):
        assert (blocks_of(_hours(100), np.timedelta64(span, "h"), min_rows=1) == -1).all()


def test_seasonal_is_the_most_unusual_block_against_the_rest() -> None:
    trained = _column([1.0] * 50 + [1.0] * 50 + [5.0] * 50)
    bins, blocks = NumericBins.fit(trained, 4), np.repeat([0, 1, 2], 50)
    for judging in ("psi", "jensen_shannon", "kullback_leibler", "wasserstein", "kolmogorov_smirnov"):
        moved = movement(bins, trained, blocks, _column([1.0] * 50), judging, None)
        assert moved.seasonal > moved.distances[judging] > 0


def _days(days: int, rows: int, spread: float, random: np.random.Generator = RANDOM) -> tuple[np.ndarray, np.ndarray]:
    """Values with a level of each day, and the number of the day of each."""
    units = np.repeat(np.arange(days), rows)
    return random.normal(size=days * rows) + spread * random.normal(size=days)[units], units


def _chance(before: np.ndarray, days: np.ndarray, now: np.ndarray, days_now: np.ndarray) -> float:
    return chi_square(np.digitize(before, EDGES), days, np.digitize(now, EDGES), days_now).chance


def test_the_error_of_a_mean_is_its_deviation_over_samples_of_days() -> None:
    means = [float(_days(40, 50, 1.0, np.random.default_rng(seed))[0].mean()) for seed in range(300)]
    assert mean_error(*_days(40, 50, 1.0)) == pytest.approx(float(np.std(means)), rel=0.35)
    rows = RANDOM.normal(size=400)
    assert mean_error(rows, np.arange(400)) == pytest.approx(rows.std(ddof=1) / 20)
    assert mean_error(rows, np.zeros(400, np.int64)) == math.inf


def test_independent_rows_are_tested_as_scipy_does() -> None:
    before, now = RANDOM.integers(0, 4, 900), RANDOM.integers(0, 4, 400)
    table = np.stack([np.bincount(placed, minlength=4) for placed in (before, now)])
    expected = chi2_contingency(table, correction=False).pvalue
    assert chi_square(before, np.arange(900), now, np.arange(400)).chance == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(("days", "days_now"), [(60, 14), (200, 30)])
def test_days_that_only_differ_by_chance_seldom_alarm_and_would_if_rows_counted(days: int, days_now: int) -> None:
    random, dependent, single = np.random.default_rng(11), 0, 0
    for _ in range(150):
        (before, units), (now, units_now) = _days(days, 40, 0.8, random), _days(days_now, 40, 0.8, random)
        dependent += _chance(before, units, now, units_now) < 0.05
        single += _chance(before, np.arange(len(before)), now, np.arange(len(now))) < 0.05
    assert dependent <= 15 and single > 70, "5 % of 150, with chance; 22 without the second order"


def test_a_shift_is_seen_through_dependent_days() -> None:
    random, seen = np.random.default_rng(4), 0
    for _ in range(20):
        (before, days), (now, days_now) = _days(150, 20, 1.0, random), _days(8, 20, 1.0, random)
        seen += _chance(before, days, now + 1.4, days_now) < 0.01
    assert seen >= 12


@pytest.mark.parametrize(("share", "share_now", "days_now"), [(0.3, 0.0, 7), (0.3, 0.0, 14), (0.0, 0.3, 7)])
def test_a_flag_that_dies_or_begins_is_seen(share: float, share_now: float, days_now: int) -> None:
    random = np.random.default_rng(5)
    before, now = ((random.random(count * 200) < part) * 1 for count, part in ((150, share), (days_now, share_now)))
    assert chi_square(before, np.repeat(np.arange(150), 200), now, np.repeat(np.arange(days_now), 200)).chance < 1e-4


def test_a_single_day_is_worth_what_days_of_the_reference_are() -> None:
    (before, days), now = _days(200, 40, 1.0), RANDOM.normal(0.7, 1, size=40)
    placed, placed_now = np.digitize(before, [-1, 0, 1]), np.digitize(now, [-1, 0, 1])
    tested = chi_square(placed, days, placed_now, np.zeros(40, dtype=np.int64))
    assert tested.effective < 8 and tested.chance > 0.05


def test_values_that_go_missing_are_tested_too() -> None:
    numbers = RANDOM.normal(size=400)
    columns = [_column(numbers), _column(np.where(np.arange(400) % 2 == 0, numbers, np.nan))]
    units, none = (np.arange(400), np.arange(400)), np.full(400, -1)
    moved = movement(NumericBins.fit(columns[0], 10), columns[0], none, columns[1], "psi", units)
    assert moved.tested is not None and moved.tested.chance < 1e-6


def test_corrections_are_those_of_their_authors() -> None:
    chances = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert corrected(chances, "holm") == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert corrected(chances, "benjamini_hochberg") == pytest.approx({"a": 0.02, "b": 0.04, "c": 0.04, "d": 0.02})
