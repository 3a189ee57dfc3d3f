"""The rows of a job, the order in which processes take them, and the batches of every step, loaded ahead.

Which rows a process takes is a pure function of seed, epoch, step and place, never of the past. The order of an epoch's
rows follows from (seed, epoch) alone, so a global batch holds the same rows for any number of processes. Each process
takes the rows of its shard (`shards.py`), cut into micro-batches of equal length. Without shards, the batch is cut into
equal shares, one per process and micro-batch. Where rows do not divide, a share is filled up with rows of weight zero,
so that every process takes every step and no row counts twice.
"""

import math
import queue
import threading
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gatehouse.training.shards import SIZES, has_one_shape, shard_count, shards_of, shards_of_groups
from gatehouse.training.spec import NetworkTraining

ARRAYS, OPTIONAL_ARRAYS = ("numbers", "ids", "labels"), ("weights", "groups")
PREFETCH_SECONDS = 0.01
"""Time between two checks, at the end of an epoch, of whether the thread that prefetches has ended."""


@dataclass(frozen=True)
class Rows:
    """One part of the data, or the shard of it that one process owns."""

    numbers: Tensor  # float32, (rows, width)
    ids: Tensor  # category ids, int64, (rows, columns)
    labels: Tensor  # float32, (rows,)
    weights: Tensor | None = None  # float32, (rows,); None where every row weighs 1
    groups: Tensor | None = None  # int64, (rows,), rising; None where rows stand alone

    def __len__(self) -> int:
        return len(self.labels)

    @classmethod
    def load(cls, folder: Path, shard: int | None = None) -> "Rows":
        """Map the arrays of one part into memory: the processes of one machine share the pages.

        Of a divided part, those of a shard; arrays that are not divided are those of the whole part.
        """
        folders = [folder] if shard is None else [folder / str(shard), folder]
        paths = {path.stem: path for place in reversed(folders) for path in place.glob("*.npy")}
        names = [*ARRAYS, *(name for name in OPTIONAL_ARRAYS if name in paths)]
        # Copy on write, as torch takes no read-only arrays.
        return cls(**{name: torch.from_numpy(np.load(paths[name], mmap_mode="c")) for name in names})


@dataclass
class Position:
    """Where a run is: the next step to take."""

    epoch: int = 0
    step: int = 0


@dataclass(frozen=True)
class Share:
    """Rows of one process at one step, in order, micro-batch after micro-batch."""

    rows: Tensor  # row numbers, (micro-batches x rows of a micro-batch,)
    real: Tensor  # False where a row only fills up, and counts nothing
    batch: int  # rows of the global batch, all processes together


class RowSampler:
    """Samples rows one by one."""

    def __init__(self, rows: int, batch_size: int, seed: int, *, full: bool = False, shards: int = 1) -> None:
        """Sample `batch_size` of the rows for a global batch; with `full` the last batch of an epoch is filled up.

        `rows` are those of all shards together.
        """
        self.rows, self.batch_size, self.seed, self.full, self.shards = rows, batch_size, seed, full, shards
        self.steps = math.ceil(rows / batch_size)
        self._last: tuple[int, Tensor] | None = None

    def share(self, epoch: int, step: int, place: int, places: int, micro: int = 1) -> Share:
        """The rows of the process at `place` of `places`, cut into `micro` micro-batches; numbers are in its shard."""
        if self._last is None or self._last[0] != epoch:
            self._last = epoch, _order(self.rows, self.seed, epoch)
        batch = self._last[1][step * self.batch_size : (step + 1) * self.batch_size].long()
        whole = len(batch)
        if self.shards > 1:
            own = torch.from_numpy(shards_of(batch.numpy(), self.shards) == place)
            batch, place, places = batch[own] // self.shards, 0, 1
        length = max(1, math.ceil((self.batch_size if self.full else len(batch)) / (places * micro)))
        at = torch.arange(place * micro * length, (place + 1) * micro * length)
        real = at < len(batch)
        return Share(batch[torch.where(real, at, 0)] if len(batch) else torch.zeros_like(at), real, whole)


class GroupSampler:
    """Samples whole groups of neighbouring rows, for losses that compare the rows of a group."""

    def __init__(self, sizes: Tensor, batch_size: int, seed: int, *, shards: int = 1) -> None:
        """Sample groups of `sizes` rows each, laid end to end; a global batch has `batch_size` rows on average.

        The groups are those of all shards together.
        """
        self.rows, self.seed, self.shards = int(sizes.sum()), seed, shards
        self._sizes, self._shards = sizes, torch.from_numpy(shards_of_groups(sizes.numpy(), shards))
        # Where each group begins in its shard.
        order = self._shards.argsort(stable=True)
        ends = sizes[order].cumsum(0)
        before = torch.bincount(self._shards, sizes.double(), shards).cumsum(0).long()
        self._starts = torch.empty_like(sizes)
        self._starts[order] = ends - sizes[order] - torch.cat([before.new_zeros(1), before])[self._shards[order]]
        self._groups = max(1, round(batch_size * len(sizes) / self.rows))
        self.steps = math.ceil(len(sizes) / self._groups)
        self._last: tuple[int, Tensor] | None = None

    def share(self, epoch: int, step: int, place: int, places: int, micro: int = 1) -> Share:
        """The rows of the process at `place` of `places`, cut into `micro` micro-batches of equal length."""
        if self._last is None or self._last[0] != epoch:
            self._last = epoch, _order(len(self._sizes), self.seed, epoch)
        batch = self._last[1][step * self._groups : (step + 1) * self._groups].long()
        whole = int(self._sizes[batch].sum())
        if self.shards > 1:
            batch, place, places = batch[self._shards[batch] == place], 0, 1
        pieces = torch.tensor_split(batch, places * micro)
        longest = max(1, max(int(self._sizes[piece].sum()) for piece in pieces))
        rows = torch.zeros(micro, longest, dtype=torch.int64)
        real = torch.zeros(micro, longest, dtype=torch.bool)
        for index, piece in enumerate(pieces[place * micro : (place + 1) * micro]):
            sizes = self._sizes[piece]
            offsets = torch.repeat_interleave(self._starts[piece] - (sizes.cumsum(0) - sizes), sizes)
            rows[index, : len(offsets)] = offsets + torch.arange(len(offsets))
            real[index, : len(offsets)] = True
        return Share(rows.flatten(), real.flatten(), whole)


def _order(count: int, seed: int, epoch: int) -> Tensor:
    """The order of an epoch's rows or groups: the same numbers for any type of integer."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    return torch.randperm(count, generator=generator, dtype=torch.int32 if count < 1 << 31 else torch.int64)


def sampler_of(rows: Rows, spec: NetworkTraining, folder: Path | None = None) -> RowSampler | GroupSampler:
    """The sampler for a spec's loss and layout; `folder` is that of a part that is divided into shards."""
    size, seed, shards = spec.data.batch_size, spec.seed, shard_count(spec) if folder else 1
    sizes = torch.from_numpy(np.load(folder / SIZES)) if folder and shards > 1 else None
    if spec.loss.kind == "pairwise":
        assert rows.groups is not None
        if sizes is None:
            sizes = torch.unique_consecutive(rows.groups, return_counts=True)[1]
        return GroupSampler(sizes, size, seed, shards=shards)
    count = len(rows) if sizes is None else int(sizes.sum())
    return RowSampler(count, size, seed, full=has_one_shape(spec), shards=shards)


@dataclass(frozen=True)
class Batch:
    """Rows of one micro-batch; `weights` is zero for rows that only fill up, `groups` is empty where there are none."""

    numbers: Tensor
    ids: Tensor
    labels: Tensor
    weights: Tensor
    groups: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self._tensors()))

    def pinned(self) -> "Batch":
        """The batch in page-locked memory, from where a GPU copies while it computes."""
        return Batch(*(tensor.pin_memory() for tensor in self._tensors()))

    def split(self, count: int) -> list["Batch"]:
        """Cut into `count` micro-batches of equal length, without a copy."""
        if count == 1:
            return [self]
        parts = [tensor.chunk(count) if len(tensor) else (tensor,) * count for tensor in self._tensors()]
        return [Batch(*tensors) for tensors in zip(*parts, strict=True)]

    def _tensors(self) -> tuple[Tensor, ...]:
        return self.numbers, self.ids, self.labels, self.weights, self.groups


def gather(rows: Rows, chosen: Tensor, real: Tensor) -> Batch:
    """The chosen rows, shape (batch,), one gather per tensor; rows that are not real have no weight and no group."""
    weights = real.float() if rows.weights is None else rows.weights[chosen] * real
    groups = torch.empty(0) if rows.groups is None else torch.where(real, rows.groups[chosen], -1)
    numbers, ids, labels = (tensor.index_select(0, chosen) for tensor in (rows.numbers, rows.ids, rows.labels))
    return Batch(numbers, ids, labels, weights, groups)


@dataclass(frozen=True)
class Step:
    """The work of one process at one step."""

    epoch: int
    index: int
    last: bool
    rows: int
    batch: Batch


class Loader:
    """Steps of one process, from any position on, to the end of the last epoch."""

    def __init__(self, rows: Rows, spec: NetworkTraining, place: int, places: int, folder: Path | None = None) -> None:
        """Load from the rows of the process at `place` of `places`; see `sampler_of`."""
        self._rows, self._spec, self._place, self._places = rows, spec, place, places
        self._sampler = sampler_of(rows, spec, folder)

    @property
    def rows(self) -> int:
        """Rows of one epoch, all processes together."""
        return self._sampler.rows

    @property
    def steps(self) -> int:
        """Steps of one epoch."""
        return self._sampler.steps

    def from_position(self, position: Position) -> Generator[Step]:
        """The steps from `position` on; close the iterator to stop the thread that reads ahead."""
        start, micro, depth = (
            (position.epoch, position.step),
            self._spec.data.accumulation,
            self._spec.operation.prefetch,
        )

        def steps() -> Generator[Step]:
            for epoch in range(start[0], self._spec.stopping.epochs):
                for index in range(start[1] if epoch == start[0] else 0, self.steps):
                    share = self._sampler.share(epoch, index, self._place, self._places, micro)
                    batch = gather(self._rows, share.rows, share.real)
                    if self._spec.compute.device == "cuda":
                        batch = batch.pinned()
                    yield Step(epoch, index, index == self.steps - 1, share.batch, batch)

        return ahead(steps(), depth) if depth else steps()


def ahead(steps: Iterator[Step], depth: int) -> Generator[Step]:
    """The same steps, made on a thread, at most `depth` before they are taken; its error is raised here."""
    made: queue.Queue[Step | BaseException | None] = queue.Queue(maxsize=depth)
    stopped = threading.Event()

    def fill() -> None:
        try:
            for step in steps:
                made.put(step)
                if stopped.is_set():
                    return
            made.put(None)
        except BaseException as error:
            made.put(error)

    thread = threading.Thread(target=fill, name="prefetch", daemon=True)
    thread.start()
    try:
        while (step := made.get()) is not None:
            if isinstance(step, BaseException):
                raise step
            yield step
    finally:
        stopped.set()
        while thread.is_alive():
            try:
                made.get(timeout=PREFETCH_SECONDS)
            except queue.Empty:
                continue
        thread.join()
