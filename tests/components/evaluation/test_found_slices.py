"""Slices that are found: the planted one is, and none is where rows do not differ."""

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.components.evaluation.found_slices import find_slices

ROWS = 4_000
FEATURES = {"hour": True, "carrier": False, "origin": False}


def example(seed: int) -> tuple[pa.Table, np.ndarray]:
    """Rows whose losses have nothing to do with their features."""
    draw = np.random.default_rng(seed)
    hour = draw.integers(0, 24, ROWS).astype(float)
    hour[:200] = np.nan
    carrier, origin = draw.choice(["AA", "DL", "UA"], ROWS), draw.choice(["EWR", "JFK"], ROWS)
    return pa.table({"hour": hour, "carrier": carrier, "origin": origin}), draw.exponential(size=ROWS)


def test_the_planted_pair_is_found_and_slices_that_hold_it_are_not_repeated() -> None:
    table, losses = example(0)
    worse = np.asarray(pa.compute.equal(table["carrier"], "UA")) & np.asarray(pa.compute.equal(table["origin"], "JFK"))
    found = find_slices(table, FEATURES, losses + 0.5 * worse, 1, 100)[0]
    assert found.name == "carrier=UA × origin=JFK"
    assert found.rows.tolist() == np.flatnonzero(worse).tolist() and found.p_value < 1e-6
    carrier = np.asarray(pa.compute.equal(table["carrier"], "UA"))
    assert [each.name for each in find_slices(table, FEATURES, losses + 0.5 * carrier, 1, 100)] == ["carrier=UA"]


def test_rows_without_a_value_are_a_slice_and_small_ones_are_not() -> None:
    table, losses = example(1)
    losses[:200] += 1
    assert find_slices(table, FEATURES, losses, 1, 150)[0].name == "hour=(null)"
    assert find_slices(table, FEATURES, losses, 5, 300) == []


def test_where_nothing_differs_nothing_is_found_but_for_chance() -> None:
    assert sum(bool(find_slices(*_given(seed), 5, 100)) for seed in range(40)) <= 6


def test_dependent_rows_need_a_larger_difference() -> None:
    table, losses = example(2)
    losses = losses + 0.2 * np.asarray(pa.compute.equal(table["carrier"], "UA"))
    assert find_slices(table, {"carrier": False}, losses, 1, 100)
    assert not find_slices(table, {"carrier": False}, losses, 1, 100, variance=20.0)


@pytest.mark.parametrize("value", [np.nan, 3.0])
def test_a_number_that_never_changes_is_one_slice_and_none_is_found(value: float) -> None:
    table = pa.table({"x": np.full(1000, value)})
    assert find_slices(table, {"x": True}, np.arange(1000.0), 5, 10) == []


def _given(seed: int) -> tuple[pa.Table, dict[str, bool], np.ndarray]:
    table, losses = example(seed)
    return table, FEATURES, losses
