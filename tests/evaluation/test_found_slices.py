"""Slices that are found: the planted one is, and none is where rows do not differ."""

import numpy as np
import pyarrow as pa
import pytest

from gatehouse.evaluation.bootstrap import Units
from gatehouse.evaluation.found_slices import find_slices
from gatehouse.evaluation.slices import Slice, Slicing
from gatehouse.evaluation.spec import EvaluationSpec
from gatehouse.evaluation.uncertainty import uncertainty_of
from gatehouse.metrics.tasks.ranking import RANKING

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


def _searches(worse: str) -> tuple[pa.Table, np.ndarray, np.ndarray, np.ndarray]:
    """600 searches of five results, in mixed order, their labels, scores and searches; one country is ranked badly.

    A tenth of the searches has nothing to find; `place` differs within a search, and tells which results are relevant.
    """
    draw = np.random.default_rng(3)
    country, place = draw.choice(["de", "fr", "it"], 600), np.tile(np.arange(5.0), 600)
    search = np.repeat(np.arange(600), 5)
    labels = np.where(draw.random(600) < 0.1, 0, 1)[search] * (place == 0)
    scores = draw.normal(size=3000) + np.where(country == worse, 0.0, 1.5)[search] * labels
    order = draw.permutation(3000)
    table = pa.table({"country": country[search], "place": place, "search": search}).take(pa.array(order))
    return table, labels[order].astype(np.float64), scores[order], search[order]


def _found(worse: str, features: dict[str, bool], least: int = 100, effect: float = 1.0) -> list[Slice]:
    table, labels, scores, search = _searches(worse)
    spec = EvaluationSpec(min_slice_rows=least, bootstrap_samples=20)
    read = {"candidate": RANKING.read(scores, search)}
    units = Units.single(len(labels), search)
    return Slicing(table, labels, read, spec, RANKING, (), ("ndcg", 0.95), units).found(features, effect)


def test_slices_of_rankings_are_whole_groups_that_have_something_to_find() -> None:
    (found,) = _found("it", {"country": False, "place": True})
    table, labels, _, search = _searches("it")
    counted = np.isin(search, search[labels > 0]) & np.asarray(pa.compute.equal(table["country"], "it"))
    assert (found.name, found.rows, found.judged) == ("country=it", counted.sum(), False)
    assert found.p_value is not None and found.p_value < 1e-6
    assert _found("none", {"country": False, "place": True}) == []


def test_slices_of_rankings_are_no_smaller_than_asked_and_a_feature_within_groups_makes_none() -> None:
    assert _found("it", {"place": True}) == []
    assert _found("it", {"country": False}, least=210) == [], "groups are counted, and not rows"
    assert _found("it", {"country": False}, effect=100.0) == []


def test_rankings_drawn_by_larger_units_have_a_design_effect() -> None:
    _, labels, scores, search = _searches("it")
    read, spec = {"candidate": RANKING.read(scores, search)}, EvaluationSpec(bootstrap_samples=200)
    units = Units("day", 60, search // 10)
    assert uncertainty_of(RANKING, labels, read, Units.single(3000, search), spec)[0].design_effect == {}
    assert 0.5 < uncertainty_of(RANKING, labels, read, units, spec)[0].design_effect["ndcg"] < 2


def _given(seed: int) -> tuple[pa.Table, dict[str, bool], np.ndarray]:
    table, losses = example(seed)
    return table, FEATURES, losses
