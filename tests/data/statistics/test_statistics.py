"""Statistics of columns: those of numpy, the same however rows are cut, exact where exactness is promised."""

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from fractions import Fraction
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gatehouse.data.statistics import Statistics, columns
from gatehouse.data.statistics.columns import ColumnPlan
from gatehouse.data.statistics.partial import (
    BIN_LEVELS,
    HEAVY_SHARE,
    SHOWN_LEVELS,
    ColumnReadout,
    OrderedMerge,
    Partial,
    read_out,
)
from gatehouse.data.statistics.stage import RANK_ERROR
from gatehouse.data.validation.anomalies import MOVEMENTS
from gatehouse.store.canonical import canonical_json

NAN = float("nan")
PATCHED = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

WHOLE = st.none() | st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1)
REAL = st.none() | st.floats() | st.sampled_from([0.0, -0.0, 0.1, 0.2, 0.3, NAN, math.inf, 1e308, -1e308, 5e-324])
TEXT = st.none() | st.text(max_size=3) | st.sampled_from(["", "a", "ä", "\U0001f600", "\uffff", "x" * 300])
TIME = st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
COLUMNS = st.one_of(
    st.tuples(st.just(pa.int64()), st.lists(WHOLE, max_size=30)),
    st.tuples(st.just(pa.float64()), st.lists(REAL, max_size=30)),
    st.tuples(st.just(pa.string()), st.lists(TEXT, max_size=30)),
    st.tuples(st.just(pa.bool_()), st.lists(st.none() | st.booleans(), max_size=30)),
    st.tuples(st.just(pa.timestamp("us")), st.lists(TIME, max_size=30)),
    st.tuples(st.just(pa.list_(pa.int8())), st.lists(st.none() | st.lists(st.integers(0, 1)), max_size=9)),
)
CUTS = st.lists(st.integers(0, 30), max_size=5)


def measured(array: pa.Array, cuts: list[int] | None = None, **plan: Any) -> ColumnReadout:
    """The statistics of an array that was cut into parts, some perhaps empty."""
    column_plan = ColumnPlan.of(pa.field("a", array.type), plan.get("sensitive", False), plan.get("baseline", {}))
    merge = OrderedMerge()
    for start, end in itertools.pairwise([0, *sorted(cuts or ()), max(len(array), *cuts or [0])]):
        merge.add(Partial.of(array.slice(start, end - start), column_plan))
    return read_out(merge.result())


def statistics_of(array: pa.Array, cuts: list[int] | None = None, **plan: Any) -> Statistics:
    return measured(array, cuts, **plan).statistics


@contextmanager
def sketching_beyond(most: int) -> Iterator[None]:
    """Sketch columns with more than so many distinct values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "MOST_VALUES", most)
        yield


@PATCHED
@given(column=COLUMNS, cuts=CUTS)
def test_counted_parts_merge_to_the_whole_exactly(column: tuple[pa.DataType, list[Any]], cuts: list[int]) -> None:
    array = pa.array(column[1], column[0])
    baseline = statistics_of(array.slice(0, len(array) // 2))
    result, whole = measured(array, cuts, baseline=baseline), measured(array, baseline=baseline)
    assert canonical_json([result.statistics, result.rebinned]) == canonical_json([whole.statistics, whole.rebinned])


@PATCHED
@given(column=COLUMNS, cuts=CUTS)
def test_sketched_parts_merge_to_the_whole(column: tuple[pa.DataType, list[Any]], cuts: list[int]) -> None:
    array = pa.array(column[1], column[0])
    baseline = statistics_of(array.slice(0, len(array) // 2))
    exact = measured(array, baseline=baseline)
    with sketching_beyond(2):
        result = measured(array, cuts, baseline=baseline)
    if "exact" in result.statistics:
        assert result.statistics["exact"] == (exact.statistics["distinct"] <= 2)
    # So few values fit into the sketches: what is left are the last digits of sums, and numbers above 2^53.
    same = (
        "nulls",
        "distinct",
        "not_finite",
        "zeros",
        "min",
        "max",
        "min_length",
        "max_length",
        "mean_length",
        "other",
    )
    assert _of(result.statistics, *same) == _of(exact.statistics, *same)
    assert (result.rebinned is None) == (exact.rebinned is None)
    if result.rebinned and exact.rebinned:
        assert _of(result.rebinned, "counts", "values") == _of(exact.rebinned, "counts", "values")
    if column[0] == pa.int64():
        assert result.statistics.get("sum") == exact.statistics.get("sum")


def _of(result: Statistics, *names: str) -> Statistics:
    return {name: result[name] for name in names if name in result}


class Named:
    """Stands for a partial, and tells how it was merged."""

    def __init__(self, name: str) -> None:
        self.name = name

    def merged(self, other: "Named") -> "Named":
        return Named(f"({self.name}{other.name})")


@pytest.mark.parametrize("parts", range(1, 21))
def test_parts_merge_in_their_order_and_pairs_first(parts: int) -> None:
    merge = OrderedMerge()
    for number in range(parts):
        merge.add(cast(Partial, Named(f"{number:02d}")))
    whole = cast(Named, merge.result()).name
    assert whole.replace("(", "").replace(")", "") == "".join(f"{number:02d}" for number in range(parts))
    assert all(f"({number:02d}{number + 1:02d})" in whole for number in range(0, parts - 1, 2))


@PATCHED
@given(values=st.lists(st.floats(-1e6, 1e6) | st.just(0.0) | st.integers(-5, 5).map(float), min_size=2, max_size=60))
def test_numbers_are_those_of_numpy(values: list[float]) -> None:
    result, array = statistics_of(pa.array([*values, None, NAN, math.inf])), np.array(values)
    nonzero = array[array != 0]
    assert _of(result, "nulls", "not_finite", "zeros") == {
        "nulls": 1,
        "not_finite": 2,
        "zeros": len(array) - len(nonzero),
    }
    assert (result["min"], result["max"], result["distinct"]) == (array.min(), array.max(), len(np.unique(array)))
    assert result["sum"] == pytest.approx(math.fsum(values), rel=1e-12, abs=1e-9)
    assert result["mean"] == pytest.approx(array.mean(), rel=1e-9, abs=1e-9)
    assert result["std"] == pytest.approx(array.std(ddof=1), rel=1e-9, abs=1e-9)
    expected = np.quantile(array, SHOWN_LEVELS, method="inverted_cdf")
    assert list(result["quantiles"].values()) == expected.tolist()
    edges = np.unique(np.quantile(nonzero, BIN_LEVELS, method="inverted_cdf")) if len(nonzero) else np.empty(0)
    assert result["edges"] == edges.tolist()
    assert result["counts"] == _rows_between(nonzero, edges)
    drawn = result["histogram"]
    assert drawn["below"] + sum(drawn["counts"]) + drawn["above"] == len(array)
    assert drawn["counts"] == _bars(array, drawn["edges"])


def _bars(values: np.ndarray, edges: list[float]) -> list[int]:
    """Rows in [e1, e2), [e2, e3), …, and the last edge itself."""
    result = [int(((values >= low) & (values < high)).sum()) for low, high in itertools.pairwise(edges)]
    return [*result[:-1], result[-1] + int((values == edges[-1]).sum())]


def _rows_between(values: np.ndarray, edges: np.ndarray) -> list[int]:
    limits = [-np.inf, *edges, np.inf]
    return [int(((values > low) & (values <= high)).sum()) for low, high in itertools.pairwise(limits)]


@PATCHED
@given(values=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=2, max_size=40))
def test_whole_numbers_beyond_the_precision_of_doubles_stay_exact(values: list[int]) -> None:
    result = statistics_of(pa.array(values, pa.int64()))
    assert (result["min"], result["max"], result["sum"]) == (min(values), max(values), sum(values))
    assert result["distinct"] == len(set(values))
    assert result["median"] == sorted(values)[(len(values) + 1) // 2 - 1]
    assert result["mean"] == float(Fraction(sum(values), len(values)))


def test_negative_zero_is_zero() -> None:
    written = {canonical_json(statistics_of(pa.array(values))) for values in ([0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0])}
    assert len(written) == 1
    assert "-0" not in written.pop()


def test_a_sum_beyond_doubles_is_left_out_and_the_mean_is_not() -> None:
    result = statistics_of(pa.array([1.5e308, 1.5e308]))
    assert result["mean"] == 1.5e308
    assert "sum" not in result


@pytest.mark.parametrize(
    ("array", "type", "expected"),
    [
        (pa.array([1, 2, None], pa.int8()), "int8", {"min": 1, "max": 2, "sum": 3}),
        (pa.array([1, 2**64 - 1], pa.uint64()), "uint64", {"min": 1.0, "max": float(2**64)}),
        (pa.array([1.5, NAN], pa.float32()), "float", {"min": 1.5, "not_finite": 1}),
        (pa.array(["1.25", "3.00"]).cast(pa.decimal128(9, 2)), "decimal128(9, 2)", {"min": 1.25, "max": 3.0}),
        (pa.array([True, None, True, False]), "bool", {"values": [[True, 2], [False, 1]], "other": 0, "nulls": 1}),
        (pa.array([date(2020, 2, 29)], pa.date32()), "date32", {"min": "2020-02-29", "median": "2020-02-29"}),
        (pa.array([0], pa.timestamp("s")), "timestamp", {"max": "1970-01-01T00:00:00"}),
        (pa.array([1_999], pa.timestamp("ns", tz="UTC")), "timestamp", {"max": "1970-01-01T00:00:00.000001+00:00"}),
        (pa.array([2**58], pa.timestamp("us")), "timestamp", {"max": str(np.datetime64(2**58, "us"))}),
        (pa.array(["b", "a", "b"]).dictionary_encode(), None, {"values": [["b", 2], ["a", 1]], "min": "a"}),
        (pa.array(["b", None], pa.large_string()), "large_string", {"values": [["b", 1]], "max_length": 1}),
        (pa.array([None, None]), "null", {"nulls": 2}),
        (pa.array([b"x", None]), "binary", {"nulls": 1}),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else "",
)
def test_each_arrow_type_is_measured_as_its_kind(array: pa.Array, type: str | None, expected: Statistics) -> None:
    result = statistics_of(array)
    assert type is None or result["type"] == type
    assert _of(result, *expected) == expected


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.timestamp("us")])
def test_a_column_without_values_can_be_compared(kind: pa.DataType) -> None:
    filled = {pa.int64(): [1, 2], pa.float64(): [1.0, 2.0], pa.string(): ["a", "b"], pa.bool_(): [True, False]}
    baseline = statistics_of(pa.array(filled.get(kind, [0]), kind))
    for values in ([], [None, None]):
        result = measured(pa.array(values, kind), baseline=baseline)
        assert _of(result.statistics, "nulls", "distinct", "exact") == {
            "nulls": len(values),
            "distinct": 0,
            "exact": True,
        }
        assert (result.rebinned is None) == (kind == pa.timestamp("us"))
        if result.rebinned and values:
            assert MOVEMENTS["psi"].measure(baseline, result.rebinned) > 1


@pytest.mark.parametrize("most", [columns.MOST_VALUES, 2], ids=["counted", "sketched"])
def test_a_sensitive_column_keeps_counts_alone(most: int) -> None:
    for values in ([4123, 5123, 6123], [4.5, NAN, 5.5, 6.5], ["one", "two", "three"], [datetime(2024, 1, 1)]):
        array = pa.array([*values, None])
        with sketching_beyond(most):
            result = measured(array, sensitive=True, baseline=statistics_of(array))
        assert result.statistics.keys() == {"type", "nulls", "distinct", "exact", "sensitive"}
        assert result.rebinned is None


@PATCHED
@given(
    before=st.lists(st.integers(-3, 3).map(float) | st.floats(-9, 9), min_size=1, max_size=40),
    now=st.lists(st.integers(-3, 3).map(float) | st.floats(-9, 9), min_size=1, max_size=40),
    cuts=CUTS,
    most=st.sampled_from([2, 10_000]),
)
def test_rows_are_counted_in_the_bins_of_the_baseline(
    before: list[float], now: list[float], cuts: list[int], most: int
) -> None:
    baseline, array = statistics_of(pa.array(before)), np.array(now)
    with sketching_beyond(most):
        rebinned = measured(pa.array(now), cuts, baseline=baseline).rebinned
    assert rebinned is not None
    assert rebinned["counts"] == _rows_between(array[array != 0], np.array(baseline["edges"]))
    drawn, edges = rebinned["histogram"], baseline["histogram"]["edges"]
    assert drawn["edges"] == edges
    assert (drawn["below"], drawn["above"]) == ((array < edges[0]).sum(), (array > edges[-1]).sum())
    assert drawn["counts"] == _bars(array, edges)


@pytest.mark.parametrize("shape", ["normal", "skewed", "sorted", "half zero", "whole"])
def test_sketched_quantiles_keep_their_stated_error(shape: str) -> None:
    generator, rows = np.random.default_rng(7), 300_000
    values = {
        "normal": generator.normal(size=rows),
        "skewed": np.exp(3 * generator.normal(size=rows)),
        "sorted": np.sort(generator.normal(size=rows)),
        "half zero": np.where(generator.random(rows) < 0.5, 0, generator.normal(size=rows)),
        "whole": generator.integers(-(2**40), 2**40, rows),
    }[shape]
    result, ordered = statistics_of(pa.array(values), list(range(40_000, rows, 40_000))), np.sort(values)
    assert result["exact"] is False
    for level, value in result["quantiles"].items():
        low, high = (np.searchsorted(ordered, value, side) / rows for side in ("left", "right"))
        assert low - RANK_ERROR <= float(level) <= high + RANK_ERROR, level
    counts = _rows_between(ordered[ordered != 0], np.array(result["edges"]))
    assert np.abs(np.subtract(counts, result["counts"])).max() <= 2 * RANK_ERROR * rows
    assert sum(result["counts"]) + result["zeros"] == rows
    assert result["distinct"] == pytest.approx(len(np.unique(values)), rel=5 / 64)
    assert result["mean"] == pytest.approx(values.mean(), rel=1e-9, abs=1e-12)
    assert result["std"] == pytest.approx(values.std(ddof=1), rel=1e-9)


def test_frequent_texts_are_found_among_too_many() -> None:
    generator, rows = np.random.default_rng(7), 200_000
    texts = np.array([f"rare {number}" for number in range(rows)], dtype=object)
    shares = {"often": 0.2, "sometimes": 0.01, "seldom": 0.001}
    places = generator.permutation(rows)
    for text, share in shares.items():
        texts[places[: int(share * rows)]], places = text, places[int(share * rows) :]
    result = statistics_of(pa.array(texts), list(range(50_000, rows, 50_000)))
    assert [value for value, _ in result["values"]] == list(shares)
    for (_, count), share in zip(result["values"], shares.values(), strict=True):
        assert share * rows <= count <= (share + HEAVY_SHARE) * rows
    assert result["other"] == rows - sum(count for _, count in result["values"])
    assert result["distinct"] == pytest.approx(len(set(texts)), rel=5 / 64)


def test_distinct_long_texts_are_sketched_before_they_fill_the_memory() -> None:
    texts = pa.array([f"{number:05d}" * 2000 for number in range(1000)])
    result = statistics_of(texts, [300, 600])
    assert (result["exact"], result["values"], result["other"]) == (False, [], 1000)
    assert (result["distinct"], result["min_length"], result["max_length"]) == (1000, 10_000, 10_000)
