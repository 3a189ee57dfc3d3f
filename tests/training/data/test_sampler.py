"""The sampler: no row dropped or repeated, whatever the world size, batch size, window and position."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.training.data import sampler
from gatehouse.training.data.sampler import GroupSampler, RowSampler

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
    window=st.sampled_from([0, 1, 7, 64, 1000]),
    full=st.booleans(),
    layouts=st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3)), min_size=2, max_size=2),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_every_row_counts_once_also_where_the_world_changes_on_the_way(
    rows: int,
    batch_size: int,
    window: int,
    full: bool,
    layouts: list[tuple[int, int]],
    epoch: int,
    data: st.DataObject,
) -> None:
    before, after = (RowSampler(rows, batch_size, 7, window=window, full=full) for _ in range(2))
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
                found, counts = group[rows[real]].unique(return_counts=True)
                assert counts.tolist() == [sizes[index] for index in found.tolist()], "a group was cut"
                seen += rows[real].tolist()
    assert sorted(seen) == list(range(sum(sizes)))


def test_the_order_follows_from_seed_and_epoch_alone() -> None:
    def order(seed: int, epoch: int, places: int = 1, window: int = 0) -> list[int]:
        taken = RowSampler(64, 16, seed, window=window)
        return [row for step in range(taken.steps) for row in _rows(taken, epoch, step, places, 1)]

    torch.manual_seed(1)
    first = order(7, 0)
    torch.manual_seed(2)
    assert order(7, 0) == first
    assert order(7, 0, places=4) == first
    assert order(7, 1) != first
    assert order(8, 0) != first
    assert order(7, 0, window=16) != order(7, 1, window=16)


def test_with_a_window_rows_come_from_few_places_at_a_time_and_yet_are_mixed() -> None:
    rows, window = 40 * sampler.BLOCK + 17, 4 * sampler.BLOCK
    taken = RowSampler(rows, 1000, 7, window=window)
    first = torch.cat([taken.share(0, step, 0, 1).rows for step in range(window // 1000)])
    blocks = (first // sampler.BLOCK).unique()
    assert len(blocks) <= 5
    assert int(blocks.max() - blocks.min()) > 5, "the blocks are neighbours: they were not shuffled"
    assert len((taken.share(0, 0, 0, 1).rows // sampler.BLOCK).unique()) >= 4, "rows of a window were not mixed"


def test_the_order_of_groups_is_drawn_once_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn, draw = [], torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *given, **named: drawn.append(given) or draw(*given, **named))
    taken = GroupSampler(torch.tensor([3] * 40), 12, 7)
    for epoch in (0, 1):
        for step in range(taken.steps):
            taken.share(epoch, step, 0, 2)
    assert len(drawn) == 2
