"""Batches: what is gathered, read ahead, and split; and that the thread that reads ahead ends and tells its errors."""

import math
import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.training.batches import GroupSampler, Loader, Position, Rows, RowSampler, Step, ahead, gather
from gatehouse.training.shards import Division
from tests.training.specs import network

ROWS = Rows(
    numbers=torch.arange(40.0).reshape(20, 2),
    ids=torch.arange(20).reshape(20, 1),
    labels=torch.arange(20.0),
    weights=torch.full((20,), 2.0),
)


def _labels(steps: Iterator[Step]) -> list[tuple[int, int, bool, list[float]]]:
    return [(step.epoch, step.index, step.last, step.batch.labels.tolist()) for step in steps]


def test_a_row_that_only_fills_up_weighs_nothing_and_has_no_group() -> None:
    rows = Rows(ROWS.numbers, ROWS.ids, ROWS.labels, ROWS.weights, groups=torch.arange(20) // 4)
    batch = gather(rows, torch.tensor([5, 3, 0]), torch.tensor([True, True, False]))
    assert batch.labels.tolist() == [5.0, 3.0, 0.0]
    assert batch.numbers[0].tolist() == [10.0, 11.0]
    assert batch.weights.tolist() == [2.0, 2.0, 0.0]
    assert batch.groups.tolist() == [1, 0, -1]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_steps_from_any_position_are_those_of_the_whole_run(prefetch: int) -> None:
    spec = network(batch_size=6, epochs=3, prefetch=prefetch, accumulation=2)
    loader = Loader(ROWS, spec, 1, 2)
    whole = _labels(loader.from_position(Position()))
    assert [(epoch, index, last) for epoch, index, last, _ in whole] == [
        (epoch, index, index == 3) for epoch in range(3) for index in range(4)
    ]
    for epoch, index in ((0, 1), (1, 0), (2, 3)):
        assert _labels(loader.from_position(Position(epoch, index))) == whole[epoch * 4 + index :]


def test_reading_ahead_stops_with_the_reader() -> None:
    spec = network(batch_size=1, epochs=1000, prefetch=2)
    steps = Loader(ROWS, spec, 0, 1).from_position(Position())
    next(steps)
    assert any(thread.name == "prefetch" for thread in threading.enumerate())
    steps.close()
    assert not any(thread.name == "prefetch" for thread in threading.enumerate())


def test_an_error_while_reading_ahead_is_raised_where_the_step_is_taken() -> None:
    def broken() -> Iterator[Step]:
        yield from Loader(ROWS, network(batch_size=20, epochs=1), 0, 1).from_position(Position())
        raise OSError("the disk is gone")

    steps = ahead(broken(), 2)
    assert next(steps).last
    with pytest.raises(OSError, match="the disk is gone"):
        next(steps)


Sampler = RowSampler | GroupSampler


def _rows(taken: Sampler, epoch: int, step: int, places: int, micro: int) -> list[int]:
    """The real rows of a step, all places together, in order."""
    shares = [taken.share(epoch, step, place, places, micro) for place in range(places)]
    assert len({len(share.rows) for share in shares}) == 1, "places disagree about the shape of a step"
    assert all(len(share.rows) % micro == 0 for share in shares)
    rows = [row for share in shares for row in share.rows[share.real].tolist()]
    assert {share.batch for share in shares} == {len(rows)}
    return rows


@given(
    rows=st.integers(1, 400),
    batch_size=st.integers(1, 80),
    full=st.booleans(),
    layouts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=2, max_size=2),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_every_row_counts_once_also_where_the_world_changes_on_the_way(
    rows: int, batch_size: int, full: bool, layouts: list[tuple[int, int]], epoch: int, data: st.DataObject
) -> None:
    before, after = (RowSampler(rows, batch_size, 7, full=full) for _ in range(2))
    assert before.steps == math.ceil(rows / batch_size)
    change = data.draw(st.integers(0, before.steps))
    counted = [
        row
        for step in range(before.steps)
        for row in _rows(before if step < change else after, epoch, step, *layouts[step >= change])
    ]
    assert sorted(counted) == list(range(rows))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    batch_size=st.integers(1, 50),
    places=st.integers(1, 4),
    micro=st.integers(1, 3),
    epoch=st.integers(0, 2),
)
def test_groups_stay_whole_and_count_once(
    sizes: list[int], batch_size: int, places: int, micro: int, epoch: int
) -> None:
    taken = GroupSampler(torch.tensor(sizes), batch_size, 7)
    group = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    seen: list[int] = []
    for step in range(taken.steps):
        for place in range(places):
            share = taken.share(epoch, step, place, places, micro)
            for rows, real in zip(share.rows.chunk(micro), share.real.chunk(micro), strict=True):
                group_numbers, counts = group[rows[real]].unique(return_counts=True)
                assert counts.tolist() == [sizes[index] for index in group_numbers.tolist()], "a group was cut"
                seen += rows[real].tolist()
    assert sorted(seen) == list(range(sum(sizes)))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=60),
    grouped=st.booleans(),
    batch_size=st.integers(1, 50),
    shards=st.integers(2, 5),
    micro=st.integers(1, 3),
    epoch=st.integers(0, 2),
)
def test_a_batch_of_shards_has_the_rows_that_it_has_without(
    sizes: list[int], grouped: bool, batch_size: int, shards: int, micro: int, epoch: int
) -> None:
    tensor = torch.tensor(sizes)
    rows = int(tensor.sum())
    whole: Sampler = GroupSampler(tensor, batch_size, 7) if grouped else RowSampler(rows, batch_size, 7)
    division = Division.of_train(rows, np.array(sizes) if grouped else None, shards)
    numbers = [np.flatnonzero(division.shards == shard) for shard in range(shards)]
    taken: Sampler = (
        GroupSampler(tensor, batch_size, 7, shards=shards)
        if grouped
        else RowSampler(rows, batch_size, 7, shards=shards)
    )
    assert taken.steps == whole.steps
    for step in range(whole.steps):
        expected, seen = whole.share(epoch, step, 0, 1), list[int]()
        for place in range(shards):
            share = taken.share(epoch, step, place, shards, micro)
            assert share.batch == expected.batch and len(share.rows) % micro == 0 < len(share.rows)
            seen += numbers[place][share.rows[share.real].numpy()].tolist()
        assert sorted(seen) == sorted(expected.rows[expected.real].tolist())


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int, places: int = 1) -> list[int]:
        taken = RowSampler(64, 16, seed)
        return [row for step in range(taken.steps) for row in _rows(taken, epoch, step, places, 1)]

    torch.manual_seed(1)
    first = order(7, 0)
    torch.manual_seed(2)
    assert order(7, 0) == first
    assert order(7, 0, places=4) == first
    assert order(7, 1) != first
    assert order(8, 0) != first
