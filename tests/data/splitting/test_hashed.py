"""Division by hash: stable under growth and order, fractions as near as promised, folds that partition."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gatehouse.data.splitting.divide import PARTS, Partition, by_rank, by_threshold, divide, fold_by_rank, unit_of
from gatehouse.data.splitting.spec import Fractions
from gatehouse.data.splitting.stable_hash import mix
from tests.data.splitting.conftest import opened, spec_of

ROW_STRATEGIES: list[dict[str, Any]] = [
    {"strategy": "random"},
    {"strategy": "entity"},
    {"strategy": "group", "columns": ["team", "town"]},
    {"strategy": "k_fold", "folds": 3, "test_fraction": 0.2},
    {"strategy": "k_fold", "folds": 3, "test_fraction": 0.2, "unit": "group", "columns": ["town"]},
    {"strategy": "k_fold", "folds": 3, "test_from": "1970-01-03", "gap": "P1D", "unit": "entity"},
]
Row = tuple[str, int, str, int]


def _table(rows: list[Row]) -> pa.Table:
    """Key, hour of the decision, town (as the team's home) and label."""
    hours = [hour * 3_600_000_000 for _, hour, _, _ in rows]
    return pa.table(
        {
            "key": pa.array([row[0] for row in rows], pa.string()),
            "decision_time": pa.array(hours, pa.timestamp("us", "UTC")),
            "label_time": pa.array([hour + 3_600_000_000 for hour in hours], pa.timestamp("us", "UTC")),
            "town": pa.array([row[2] for row in rows], pa.string()),
            "team": pa.array([len(row[2]) for row in rows], pa.int32()),
            "label": pa.array([row[3] for row in rows], pa.int8()),
        }
    )


rows_of = st.lists(
    st.tuples(
        st.text(max_size=3),
        st.integers(0, 100),
        st.sampled_from(["Zürich", "København", "", "東京", "Lund"]),
        st.integers(0, 1),
    ),
    min_size=1,
    max_size=40,
)


def _places(partition: Partition, rows: list[Row]) -> list[tuple[Any, ...]]:
    """For each row, in which part and on which side of each fold it is."""
    placed: list[list[str]] = [[] for _ in rows]
    for parts in [partition.parts, *(fold for _, fold in partition.every_fold())]:
        for name, part in parts.items():
            for row in part.tolist():
                placed[row].append(name)
    return [(row, *places) for row, places in zip(rows, placed, strict=True)]


@settings(max_examples=40, deadline=None)
@given(rows=rows_of, more=rows_of, keys=st.sampled_from(ROW_STRATEGIES), data=st.data())
def test_neither_growth_nor_order_moves_a_row(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], more: list[Row], keys: dict[str, Any], data: Any
) -> None:
    folder, spec = tmp_path_factory.mktemp("rows"), spec_of(**keys)
    before = _places(divide(spec, opened(folder, _table(rows))), rows)
    grown = data.draw(st.permutations(rows + more))
    after = _places(divide(spec, opened(folder, _table(grown))), grown)
    assert set(before) <= set(after)


@settings(max_examples=40, deadline=None)
@given(rows=rows_of, keys=st.sampled_from([*ROW_STRATEGIES, {"strategy": "stratified"}]))
def test_parts_and_folds_partition_the_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], keys: dict[str, Any]
) -> None:
    partition = divide(spec_of(**keys), opened(tmp_path_factory.mktemp("rows"), _table(rows)))
    together = sorted(row for part in partition.parts.values() for row in part.tolist())
    left_out = sum(partition.left_out.values())
    assert len(together) == len(set(together)) == len(rows) - left_out
    folds = [fold for _, fold in partition.every_fold()]
    if folds:
        outside = set(range(len(rows))) - {row for row in together if row not in partition.parts["test"]}
        validated = sorted(row for fold in folds for row in fold["validation"].tolist())
        assert validated == sorted(set(range(len(rows))) - outside)
        for fold in folds:
            assert sorted([*fold["train"].tolist(), *fold["validation"].tolist()]) == validated
        assert all(np.array_equal(folds[-1][name], partition.parts[name]) for name in ("train", "validation"))


@settings(max_examples=40, deadline=None)
@given(rows=rows_of, keys=st.sampled_from([ROW_STRATEGIES[1], ROW_STRATEGIES[2], ROW_STRATEGIES[4]]))
def test_a_group_is_on_one_side(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row], keys: dict[str, Any]
) -> None:
    spec, training_set = spec_of(**keys), opened(tmp_path_factory.mktemp("rows"), _table(rows))
    values = list(zip(*(_table(rows)[name].to_pylist() for name in unit_of(spec, training_set)), strict=True))
    partition = divide(spec, training_set)
    for parts in [partition.parts, *(fold for _, fold in partition.every_fold())]:
        sides = [{values[row] for row in part.tolist()} for part in parts.values()]
        assert not any(side & other for number, side in enumerate(sides) for other in sides[number + 1 :])


def _hashes(count: int, start: int = 0) -> Any:
    return mix(np.arange(start, start + count, dtype=np.uint64))


@pytest.mark.parametrize("fractions", [(0.7, 0.15, 0.15), (0.5, 0.3, 0.2), (0.98, 0.01, 0.01)])
def test_fractions_are_within_binomial_bounds(fractions: tuple[float, float, float]) -> None:
    count, named = 100_000, Fractions(**dict(zip(PARTS, fractions, strict=True)))
    for seed in range(20):
        placed = np.bincount(by_threshold(_hashes(count, seed * count), named), minlength=3)
        for rows, share in zip(placed, fractions, strict=True):
            # Five standard deviations: sixty draws are all inside, but for once in 30,000 runs.
            assert abs(rows - count * share) < 5 * math.sqrt(count * share * (1 - share))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30)), max_size=60), st.integers(1, 98), st.integers(1, 98))
def test_strata_are_cut_as_a_sort_by_hash_would(rows: list[tuple[int, int]], train: int, validation: int) -> None:
    assume(train + validation < 100)
    fractions = Fractions(train=train / 100, validation=validation / 100, test=(100 - train - validation) / 100)
    strata, hashes = (np.array(column, np.uint64) for column in zip(*rows, strict=True)) if rows else (_hashes(0),) * 2
    codes = by_rank(hashes, strata, fractions).tolist()
    for row, (stratum, value) in enumerate(rows):
        inside = [other for group, other in rows if group == stratum]
        rank = sum(other < value for other in inside)
        cuts = [
            math.floor(bound * len(inside) + 0.5) for bound in (fractions.train, fractions.train + fractions.validation)
        ]
        assert codes[row] == sum(rank >= cut for cut in cuts)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=300), st.integers(2, 9))
def test_every_stratum_holds_its_fractions_and_folds_to_within_a_row(strata: list[int], folds: int) -> None:
    hashes, groups = _hashes(len(strata)), np.array(strata, np.uint64)
    parts = by_rank(hashes, groups, Fractions())
    dealt, test = fold_by_rank(hashes, groups, folds, 0.2)
    for stratum in set(strata):
        inside = groups == stratum
        for code, share in enumerate((0.7, 0.15, 0.15)):
            assert abs((parts[inside] == code).sum() - share * inside.sum()) <= 1
        assert abs(test[inside].sum() - 0.2 * inside.sum()) <= 1
        counts = np.bincount(dealt[inside & ~test], minlength=folds)
        assert counts.max() - counts.min() <= 1


def test_a_test_part_by_time_leaves_its_gap_out_of_every_fold(tmp_path: Path) -> None:
    rows = [(str(hour), hour, "Lund", hour % 2) for hour in range(100)]
    spec = spec_of(strategy="k_fold", folds=2, test_from="1970-01-03", gap="P1D")
    partition = divide(spec, opened(tmp_path, _table(rows)))
    assert partition.parts["test"].tolist() == list(range(48, 100))
    for _, fold in partition.every_fold():
        assert sorted([*fold["train"].tolist(), *fold["validation"].tolist()]) == list(range(25))
    assert partition.left_out == {"gap": 23}


def test_missing_keys_are_refused_by_name_or_left_out(tmp_path: Path) -> None:
    table = pa.table({"key": ["a", None, "b", None], "town": [1, 2, None, None], "label": [0, 1, 0, 1]})
    training_set = opened(tmp_path, table)
    refused = divide(spec_of(strategy="group", columns=["key", "town"]), training_set)
    assert refused.problems[0].startswith("3 rows without a value in a column that divides them: key (2), town (2)")
    kept = divide(spec_of(strategy="group", columns=["key", "town"], null_keys="leave_out"), training_set)
    assert kept.problems == ()
    assert kept.left_out == {"null keys": 3}
    assert sum(len(part) for part in kept.parts.values()) == 1
