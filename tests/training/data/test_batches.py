"""Batches: what is gathered, read ahead, and split; and that the thread that reads ahead ends and tells its errors."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from gatehouse.training.data.batches import Loader, Step, ahead, gather
from gatehouse.training.data.rows import Rows
from gatehouse.training.data.sampler import Position
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


def test_arrays_are_mapped_and_optional_ones_may_be_missing(tmp_path: Path) -> None:
    for name in ("numbers", "ids", "labels"):
        np.save(tmp_path / f"{name}.npy", getattr(ROWS, name).numpy())
    rows = Rows.load(tmp_path)
    assert rows.weights is None
    assert torch.equal(rows.numbers, ROWS.numbers)


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


def test_with_a_window_a_step_reads_few_pages_of_a_train_part_that_need_not_fit_into_memory(tmp_path: Path) -> None:
    rows = 200_000
    for name, shape, kind in (
        ("numbers", (rows, 64), "float32"),
        ("ids", (rows, 0), "int64"),
        ("labels", (rows,), "float32"),
    ):
        np.lib.format.open_memmap(tmp_path / f"{name}.npy", mode="w+", dtype=np.dtype(kind), shape=shape).flush()
    read = {}
    for window in (0, 16_384):
        mapped = Rows.load(tmp_path)
        loader = Loader(mapped, network(batch_size=4096, shuffle_window=window, prefetch=0), 0, 1)
        next(loader.from_position(Position()))
        read[window] = _resident(tmp_path / "numbers.npy")
        del mapped, loader
    assert read[16_384] < read[0] / 2, read


def _resident(path: Path) -> int:
    """Kilobytes of a mapped file that this process has touched."""
    _, _, after = Path("/proc/self/smaps").read_text().partition(str(path))
    return int(after.partition("Rss:")[2].split()[0])
