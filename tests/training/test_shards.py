"""Shards: every row is in one, all have about as many rows, groups stay whole, and files hold the rows they should."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.errors import ConfigurationError
from gatehouse.store.store import ArtifactStore
from gatehouse.training.batches import Rows
from gatehouse.training.job import prepare_job
from gatehouse.training.shards import SIZES, Division, shard_count, shard_of_rank, shards_of
from gatehouse.training.spec import TrainSpec
from tests.training import synthetic
from tests.training.specs import network, trees
from tests.training.test_job import _table


@given(rows=st.integers(1, 2000), count=st.integers(1, 9))
def test_shards_of_rows_differ_by_one_row_and_neighbours_are_in_different_ones(rows: int, count: int) -> None:
    division = Division.of_train(rows, None, count)
    assert max(division.lengths) - min(division.lengths) <= 1 and sum(division.lengths) == rows
    assert (division.places == np.arange(rows) // count).all()
    for start in range(0, rows - count + 1, count):
        assert len(set(division.shards[start : start + count].tolist())) == count


def test_a_pattern_in_the_order_of_rows_is_in_every_shard() -> None:
    odd = np.arange(100_000) % 2 == 1
    shares = [odd[shards_of(np.arange(100_000), 2) == shard].mean() for shard in range(2)]
    assert shares == pytest.approx([0.5, 0.5], abs=0.01)


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=80), count=st.integers(1, 9))
def test_groups_stay_whole_and_shards_differ_by_one_group_at_most(sizes: list[int], count: int) -> None:
    division = Division.of_train(sum(sizes), np.array(sizes), count)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    assert all(len(set(division.shards[groups == group].tolist())) == 1 for group in range(len(sizes)))
    assert max(division.lengths) - min(division.lengths) <= max(sizes)


@pytest.mark.parametrize(
    ("spec", "shards", "of_ranks"),
    [
        (network(processes=1), 1, [0]),
        (network(processes=4), 4, [0, 1, 2, 3]),
        (network(processes=4, tensor=2), 2, [0, 0, 1, 1]),
        (network(processes=4, pipeline=2, accumulation=2), 1, None),
        (network(processes=2, compile=True), 1, None),
        (trees(processes=3), 3, [0, 1, 2]),
    ],
)
def test_the_data_axis_alone_divides(spec: TrainSpec, shards: int, of_ranks: list[int] | None) -> None:
    assert shard_count(spec) == shards
    if of_ranks is not None:
        assert [shard_of_rank(spec, rank) for rank in range(len(of_ranks))] == of_ranks


@pytest.mark.parametrize("count", [2, 3, 7])
@pytest.mark.parametrize(
    "settings", [{"sample_weight": "weight", "train_fraction": 0.4}, {"loss": "pairwise", "group": "day"}, {"refit": 1}]
)
def test_shards_hold_the_rows_of_a_part_that_is_not_divided(
    store: ArtifactStore, tmp_path: Path, settings: dict[str, Any], count: int
) -> None:
    split = synthetic.publish_split(store, synthetic.publish_training_set(store, _table(), row_group=500))
    fitted = synthetic.fitted(store, split)
    for name, processes in {"whole": 1, "divided": count}.items():
        (tmp_path / name).mkdir()
        spec = network(batch_size=128, processes=processes, **settings)
        prepare_job(store, split, fitted, spec, tmp_path / name)
    for part in ("train",) if "refit" in settings else ("train", "validation"):
        whole, folder = Rows.load(tmp_path / "whole" / part), tmp_path / "divided" / part
        if part == "train":
            sizes = None if whole.groups is None else np.load(folder / SIZES)
            division = Division.of_train(len(whole), sizes, count)
            assert np.load(folder / SIZES).sum() == len(whole)
        else:
            division = Division.of_validation(len(whole), count)
        for shard in range(count):
            own, rows = division.shards == shard, Rows.load(folder, shard)
            assert (rows.numbers[: own.sum()] == whole.numbers[own]).all()
            assert (rows.ids[: own.sum()] == whole.ids[own]).all()
            for name in ("labels", "weights", "groups"):
                array, expected = getattr(rows, name), getattr(whole, name)
                assert (array is None) == (expected is None)
                if array is not None:
                    assert (array == (expected[own] if part == "train" else expected)).all()


def test_more_processes_than_rows_are_refused(store: ArtifactStore, tmp_path: Path) -> None:
    spec = trees(processes=synthetic.TRAIN + 1)
    with pytest.raises(ConfigurationError, match=r"as the 1003 rows of the part train, found 1004"):
        prepare_job(store, *synthetic.fitted_data(store), spec, tmp_path)
