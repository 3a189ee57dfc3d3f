"""Batches of rows, gathered by the row numbers of the sampler, ahead of the training loop."""

import queue
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from gatehouse.training import waits
from gatehouse.training.data.rows import Rows
from gatehouse.training.data.sampler import GroupSampler, Position, RowSampler
from gatehouse.training.spec import NetworkTraining


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


@dataclass(frozen=True)
class Step:
    """What one process computes at one step.

    Attributes:
        epoch: From 0.
        index: Of the step within its epoch, from 0.
        last: Whether it ends the epoch.
        rows: Rows of the global batch, all processes together.
        batch: This process's share, all micro-batches.
    """

    epoch: int
    index: int
    last: bool
    rows: int
    batch: Batch


class Loader:
    """Steps of one process, from any position on, to the end of the last epoch."""

    def __init__(self, rows: Rows, spec: NetworkTraining, place: int, places: int) -> None:
        self._rows, self._spec, self._place, self._places = rows, spec, place, places
        self._sampler = sampler_of(rows, spec)

    @property
    def steps(self) -> int:
        """Of one epoch."""
        return self._sampler.steps

    def from_position(self, position: Position) -> Generator[Step]:
        """The steps from `position` on; close the iterator to stop the thread that reads ahead."""
        steps, depth = self._steps(position.epoch, position.step), self._spec.operation.prefetch
        return ahead(steps, depth) if depth else steps

    def _steps(self, epoch: int, first: int) -> Generator[Step]:
        micro = self._spec.data.accumulation
        for number in range(epoch, self._spec.stopping.epochs):
            for index in range(first, self.steps):
                share = self._sampler.share(number, index, self._place, self._places, micro)
                batch = gather(self._rows, share.rows, share.real)
                if self._spec.compute.device == "cuda":
                    batch = batch.pinned()
                yield Step(number, index, index == self.steps - 1, share.batch, batch)
            first = 0


def sampler_of(rows: Rows, spec: NetworkTraining) -> RowSampler | GroupSampler:
    """The sampler that a spec's loss and layout need.

    Raises:
        ValueError: if the loss needs groups, and the rows have none.
    """
    size, seed = spec.data.batch_size, spec.seed
    if spec.loss.kind == "pairwise":
        if rows.groups is None:
            raise ValueError("The loss pairwise needs groups, and the job has none.")
        return GroupSampler(torch.unique_consecutive(rows.groups, return_counts=True)[1], size, seed)
    # A pipeline's buffers and a compiled graph are made for one shape.
    full = spec.parallelism.pipeline > 1 or spec.compute.compile
    return RowSampler(len(rows), size, seed, window=spec.data.shuffle_window, full=full)


def gather(rows: Rows, chosen: Tensor, real: Tensor) -> Batch:
    """The chosen rows, shape (batch,), one gather a tensor; those that are not real weigh nothing and have no group."""
    weights = real.float() if rows.weights is None else rows.weights[chosen] * real
    groups = torch.empty(0) if rows.groups is None else torch.where(real, rows.groups[chosen], -1)
    numbers, ids, labels = (tensor.index_select(0, chosen) for tensor in (rows.numbers, rows.ids, rows.labels))
    return Batch(numbers, ids, labels, weights, groups)


def ahead(steps: Iterator[Step], depth: int) -> Generator[Step]:
    """The same steps, made on a thread, at most `depth` before they are taken; its error is raised here."""
    made: queue.Queue[Callable[[], Step | None]] = queue.Queue(maxsize=depth)
    stopped = threading.Event()
    thread = threading.Thread(target=_fill, args=(steps, made, stopped), name="prefetch", daemon=True)
    with _running(thread, made, stopped):
        while (step := made.get()()) is not None:
            yield step


@contextmanager
def _running(
    thread: threading.Thread, made: "queue.Queue[Callable[[], Step | None]]", stopped: threading.Event
) -> Iterator[None]:
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        while thread.is_alive():
            try:
                made.get(timeout=waits.PREFETCH_SECONDS)
            except queue.Empty:
                continue
        thread.join()


def _fill(steps: Iterator[Step], made: "queue.Queue[Callable[[], Step | None]]", stopped: threading.Event) -> None:
    try:
        for step in steps:
            made.put(lambda step=step: step)  # type: ignore[misc]
            if stopped.is_set():
                return
        made.put(lambda: None)
    except BaseException as error:
        made.put(_raising(error))


def _raising(error: BaseException) -> Callable[[], None]:
    def again() -> None:
        raise error

    return again
