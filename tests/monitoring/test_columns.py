"""Histograms of columns: their algebra, the zero bin, missing and new values, blocks of time."""

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.monitoring.bins import CategoryBins, NumericBins, blocks_of
from gatehouse.monitoring.columns import movement


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
    size = len(bins.names)
    parts = [np.bincount(bins.place(_column(part)), minlength=size) for part in (first, second, first + second)]
    assert (parts[0] + parts[1] == parts[2]).all()
    assert parts[2].sum() == len(first) + len(second) and len(parts[2]) == size


def test_a_feature_that_is_mostly_zero_is_seen_to_move() -> None:
    dry = _column([0.0] * 97 + [0.1, 0.2, 0.3])
    wet = _column([0.0] * 70 + [0.1, 0.2, 0.3] * 10)
    none = np.full(100, -1)
    assert movement(NumericBins.fit(dry, 10), dry, none, wet, "psi", None).distances["psi"] > 0.25
    quantiles_alone = np.unique(np.quantile(dry.to_numpy(), np.linspace(0, 1, 11)[1:-1]))
    assert len(quantiles_alone) == 1


def test_missing_values_and_infinities_have_a_bin_of_their_own() -> None:
    bins = NumericBins.fit(_column([1.0, 2.0, 3.0]), 2)
    assert bins.names == ["missing", "zero", "-∞ to 2", "2 to ∞"]
    assert list(bins.place(_column([None, math.nan, math.inf, 0.0, 1.0, 2.0, 9.0]))) == [0, 0, 0, 1, 2, 3, 3]


def test_a_column_without_any_value_still_has_bins() -> None:
    empty = _column([None, None])
    moved = movement(NumericBins.fit(empty, 10), empty, np.array([-1, -1]), _column([1.0, 2.0]), "psi", None)
    assert moved.distances["psi"] > 1 and moved.distances["jensen_shannon"] == 1.0
    assert "wasserstein" not in moved.distances


def test_new_rare_and_missing_categories_are_told_apart() -> None:
    bins = CategoryBins.fit(_names(["AA", "AA", "UA", "UA", "B6", None]), 2)
    assert bins.names == ["missing", "other", "AA", "UA"]
    assert list(bins.place(_names(["UA", None, "B6", "ZZ", "AA"]))) == [3, 0, 1, 1, 2]


def test_categories_of_any_type_are_compared_by_their_text() -> None:
    hours = pa.chunked_array([pa.array([5, 6, 6], pa.int8())])
    assert CategoryBins.fit(hours, 9).names == ["missing", "other", "5", "6"]


def _hours(count: int) -> "np.ndarray[tuple[int], np.dtype[np.datetime64]]":
    return np.datetime64("2013-01-01", "us") + np.arange(count) * np.timedelta64(1, "h")


def test_blocks_are_as_long_as_asked_and_small_ones_do_not_count() -> None:
    blocks = blocks_of(_hours(100), np.timedelta64(48, "h"), min_rows=10)
    assert list(np.unique(blocks, return_counts=True)[1]) == [4, 48, 48]
    assert list(blocks[:48]) == [0] * 48 and list(blocks[96:]) == [-1] * 4


@pytest.mark.parametrize("span", [0, 1000])
def test_one_block_has_nothing_to_differ_from(span: int) -> None:
    assert (blocks_of(_hours(100), np.timedelta64(span, "h"), min_rows=1) == -1).all()


def test_seasonal_is_the_most_unusual_block_against_the_rest() -> None:
    trained = _column([1.0] * 50 + [1.0] * 50 + [5.0] * 50)
    bins, blocks = NumericBins.fit(trained, 4), np.repeat([0, 1, 2], 50)
    for judging in ("psi", "jensen_shannon", "kullback_leibler", "wasserstein", "kolmogorov_smirnov"):
        moved = movement(bins, trained, blocks, _column([1.0] * 50), judging, None)
        assert moved.seasonal > moved.distances[judging] > 0
