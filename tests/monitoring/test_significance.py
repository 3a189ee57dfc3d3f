"""Tests that count dependent rows for what they are worth: design effects, false alarms, corrections."""

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import chi2_contingency, ks_2samp

from gatehouse.data.splitting.parts import Part
from gatehouse.evaluation.bootstrap import Units as EvaluationUnits
from gatehouse.monitoring.bins import NumericBins
from gatehouse.monitoring.clusters import bin_effects, design_effects, mean_error
from gatehouse.monitoring.columns import Units, movement
from gatehouse.monitoring.rows import units_of
from gatehouse.monitoring.significance import bins_tested, corrected, numbers_tested

RANDOM = np.random.default_rng(3)


def _days(days: int, rows: int, spread: float, random: np.random.Generator = RANDOM) -> tuple[np.ndarray, np.ndarray]:
    """Values with a level of each day, and the number of the day of each."""
    units = np.repeat(np.arange(days), rows)
    return random.normal(size=days * rows) + spread * random.normal(size=days)[units], units


def test_single_rows_have_no_effect_and_days_have_that_of_their_spread() -> None:
    values, units = _days(200, 50, 1.0)
    alone = np.arange(len(values))
    assert design_effects(values[:, None], alone)[0] == 1.0
    # Kish: 1 + (rows of a unit - 1) * share of the variance that is between units.
    assert design_effects(values[:, None], units)[0] == pytest.approx(1 + 49 * 0.5, rel=0.2)
    means = [float(each.mean()) for each in (_days(40, 50, 1.0, np.random.default_rng(seed))[0] for seed in range(300))]
    assert mean_error(*_days(40, 50, 1.0)) == pytest.approx(float(np.std(means)), rel=0.35)


def test_effects_of_bins_are_those_of_their_indicators() -> None:
    values, units = _days(30, 20, 2.0)
    placed = np.digitize(values, [-1, 0, 1])
    indicators = np.stack([placed == one for one in range(4)], axis=1).astype(np.float64)
    assert bin_effects(placed, units, 4) == pytest.approx(design_effects(indicators, units))


def test_independent_rows_are_tested_as_scipy_does() -> None:
    before, now = RANDOM.normal(size=900), RANDOM.normal(0.12, 1, size=400)
    rows, rows_now = np.arange(900), np.arange(400)
    assert numbers_tested(before, rows, now, rows_now).chance == pytest.approx(ks_2samp(before, now).pvalue, rel=0.25)
    placed, placed_now = RANDOM.integers(0, 4, 900), RANDOM.integers(0, 4, 400)
    table = np.stack([np.bincount(each, minlength=4) for each in (placed, placed_now)])
    expected = chi2_contingency(table, correction=False).pvalue
    assert bins_tested(placed, rows, placed_now, rows_now).chance == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", ["numbers", "bins"])
def test_days_that_only_differ_by_chance_seldom_alarm_and_would_if_rows_counted(kind: str) -> None:
    random, alarms, naive = np.random.default_rng(11), 0, 0
    for _ in range(200):
        (before, days), (now, days_now) = _days(60, 40, 0.8, random), _days(14, 40, 0.8, random)
        if kind == "bins":
            before, now = (np.digitize(each, [-1, 0, 1]) for each in (before, now))
        tested = numbers_tested if kind == "numbers" else bins_tested
        alarms += tested(before, days, now, days_now).chance < 0.05
        naive += tested(before, np.arange(len(before)), now, np.arange(len(now))).chance < 0.05
    assert alarms <= 18 and naive > 120


def test_a_daily_factor_that_moves_all_bins_has_no_more_freedom_than_one_direction() -> None:
    random, alarms = np.random.default_rng(5), 0
    edges = 1.28 * np.array([-1.28, -0.84, -0.52, -0.25, 0, 0.25, 0.52, 0.84, 1.28])
    for _ in range(150):
        (before, days), (now, days_now) = _days(200, 40, 0.8, random), _days(30, 40, 0.8, random)
        alarms += bins_tested(np.digitize(before, edges), days, np.digitize(now, edges), days_now).chance < 0.05
    assert alarms <= 15, "5 % of 150, with chance; 22 without the second order"


def test_a_week_is_a_unit() -> None:
    times = np.datetime64("2013-01-03", "us") + np.arange(28) * np.timedelta64(1, "D")
    table = pa.table({"decision_time": pa.array(times, pa.timestamp("us", "UTC"))})
    assert np.bincount(units_of(table, "week")).tolist() == [7, 7, 7, 7]
    part = Part(np.arange(28), table, np.zeros(28))
    assert EvaluationUnits.of(part, "week", "decision_time").number in (4, 5)


@pytest.mark.parametrize(("share", "share_now", "days_now"), [(0.3, 0.0, 7), (0.3, 0.0, 14), (0.0, 0.3, 7)])
def test_a_flag_that_dies_or_begins_is_seen(share: float, share_now: float, days_now: int) -> None:
    random = np.random.default_rng(5)
    flags = (random.random(150 * 200) < share).astype(np.float64), (random.random(days_now * 200) < share_now) * 1.0
    days = np.repeat(np.arange(150), 200), np.repeat(np.arange(days_now), 200)
    assert numbers_tested(flags[0], days[0], flags[1], days[1]).chance < 1e-4


def test_flags_whose_days_differ_seldom_alarm() -> None:
    random, alarms = np.random.default_rng(9), 0

    def flags(days: int) -> tuple[np.ndarray, np.ndarray]:
        level = np.clip(0.3 + 0.1 * random.normal(size=days), 0.02, 0.98)
        return (random.random(days * 100) < np.repeat(level, 100)) * 1.0, np.repeat(np.arange(days), 100)

    for _ in range(150):
        alarms += numbers_tested(*flags(150), *flags(2)).chance < 0.01
    assert alarms <= 4, "1 % of 150, with chance"


@pytest.mark.parametrize("kind", ["numbers", "bins"])
def test_a_single_day_is_worth_what_days_of_the_reference_are(kind: str) -> None:
    (before, days), now = _days(200, 40, 1.0), RANDOM.normal(0.7, 1, size=40)
    if kind == "bins":
        before, now = (np.digitize(each, [-1, 0, 1]) for each in (before, now))
    tested = numbers_tested if kind == "numbers" else bins_tested
    found = tested(before, days, now, np.zeros(40, dtype=np.int64))
    assert found.effective < 8 and found.chance > 0.05


def test_a_real_shift_is_seen_through_dependent_days() -> None:
    (before, days), (now, days_now) = _days(200, 40, 0.5), _days(30, 40, 0.5)
    tested = numbers_tested(before, days, now + 0.8, days_now)
    assert tested.chance < 1e-4 and tested.effective < 30 * 40 / 4


def test_corrections_are_those_of_their_authors() -> None:
    chances = {"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}
    assert corrected(chances, "holm") == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert corrected(chances, "benjamini_hochberg") == pytest.approx({"a": 0.02, "b": 0.04, "c": 0.04, "d": 0.02})


def test_values_that_go_missing_are_tested_too() -> None:
    values = RANDOM.normal(size=400)
    gone = np.where(np.arange(400) % 2 == 0, values, np.nan)
    columns = [pa.chunked_array([pa.array(each)]) for each in (values, gone)]
    units, none = Units(np.arange(400), np.arange(400)), np.full(400, -1)
    moved = movement(NumericBins.fit(columns[0], 10), columns[0], none, columns[1], "psi", units)
    assert moved.tested is not None and moved.tested.chance < 1e-6
    assert numbers_tested(values, units.reference, values[::2], units.current[::2]).chance > 0.1


def test_eight_days_show_a_shift_as_the_days_of_the_reference_say_how_much_days_differ() -> None:
    random, seen = np.random.default_rng(4), 0
    for _ in range(20):
        (before, days), (now, days_now) = _days(150, 20, 1.0, random), _days(8, 20, 1.0, random)
        seen += numbers_tested(before, days, now + 1.4, days_now).chance < 0.01
    assert seen >= 12, "11 to 17 of 20 over seeds, 14 with this one; 6 where the eight days have to say it themselves"
    apart, alike = np.repeat([0.0, 1.0], [28, 3]), np.repeat(np.arange(31), 10)
    levels = np.repeat(np.arange(31.0) + apart, 10)
    assert numbers_tested(levels[:280], alike[:280], levels[280:], alike[280:] - 28).effective == pytest.approx(3.0)
