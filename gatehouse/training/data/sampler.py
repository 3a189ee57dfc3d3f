"""Which rows every process takes at every step: a pure function of seed, epoch, step and place, never of the past.

The order of an epoch's rows follows from (seed, epoch) alone, so a global batch holds the same rows whatever the number
of processes. Each global batch is cut into equal shares, one a process and micro-batch; where it does not divide, a
share is filled up with rows of weight zero, so that every process takes every step and no row counts twice.

With a window, blocks of neighbouring rows are shuffled, and then the rows of each window of such blocks: rows are read
from a few places at a time, as data larger than memory needs.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BLOCK = 4096


@dataclass(frozen=True)
class Share:
    """Rows of one process at one step, in order; those of one micro-batch after those of another.

    Attributes:
        rows: Row numbers, shape (micro-batches x rows each,).
        real: False where a row only fills up; such a row counts nothing.
        batch: Rows of the global batch, all processes together.
    """

    rows: Tensor
    real: Tensor
    batch: int


@dataclass
class Position:
    """Where a run is: the next step to take."""

    epoch: int = 0
    step: int = 0

    def state_dict(self) -> dict[str, int]:
        """As plain numbers."""
        return {"epoch": self.epoch, "step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to where `state_dict` was taken."""
        self.epoch, self.step = state["epoch"], state["step"]


class RowSampler:
    """Samples rows one by one."""

    def __init__(self, rows: int, batch_size: int, seed: int, *, window: int = 0, full: bool = False) -> None:
        """Sample from `rows` rows.

        Args:
            rows: How many there are.
            batch_size: Rows of a global batch; the last of an epoch may have fewer.
            seed: Of the order.
            window: Rows that are shuffled at a time; 0 shuffles all of them.
            full: Fill up the last batch as well, so that all shares of a run have the same shape.
        """
        self.rows, self.batch_size, self.seed, self.window, self.full = rows, batch_size, seed, window, full
        self.steps = math.ceil(rows / batch_size)
        self._known: tuple[tuple[int, int], Tensor] | None = None

    def share(self, epoch: int, step: int, place: int, places: int, micro: int = 1) -> Share:
        """The rows of the process at `place` of `places`, cut into `micro` micro-batches."""
        start = step * self.batch_size
        batch = self._between(epoch, start, min(start + self.batch_size, self.rows))
        pieces = places * micro
        each = math.ceil((self.batch_size if self.full else len(batch)) / pieces)
        at = torch.arange(place * micro * each, (place + 1) * micro * each)
        real = at < len(batch)
        return Share(batch[torch.where(real, at, 0)], real, len(batch))

    def _between(self, epoch: int, start: int, stop: int) -> Tensor:
        size = self.window or self.rows
        parts = []
        for number in range(start // size, (stop - 1) // size + 1):
            begins = number * size
            parts.append(self._window(epoch, number)[max(start - begins, 0) : stop - begins])
        return torch.cat(parts) if len(parts) > 1 else parts[0]

    def _window(self, epoch: int, number: int) -> Tensor:
        """Rows of one window in order; the last one is remembered."""
        if self._known is None or self._known[0] != (epoch, number):
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            if not self.window:
                order = torch.randperm(self.rows, generator=generator)
            else:
                blocks = torch.randperm(math.ceil(self.rows / BLOCK), generator=generator)
                members = self._members(blocks, number)
                generator.manual_seed((self.seed * 1_000_003 + epoch) * 1_000_003 + 1 + number)
                order = members[torch.randperm(len(members), generator=generator)]
            self._known = (epoch, number), order
        return self._known[1]

    def _members(self, blocks: Tensor, number: int) -> Tensor:
        """Rows at places [number x window, (number + 1) x window) of the blocks, laid end to end in the order given."""
        sizes = torch.clamp(self.rows - blocks * BLOCK, max=BLOCK)
        ends = sizes.cumsum(0)
        start, stop = number * self.window, min((number + 1) * self.window, self.rows)
        first = int(torch.searchsorted(ends, start, right=True))
        last = int(torch.searchsorted(ends, stop))
        chosen, lengths = blocks[first : last + 1], sizes[first : last + 1]
        begins = int(ends[first] - sizes[first])
        laid = torch.repeat_interleave(chosen * BLOCK - (lengths.cumsum(0) - lengths), lengths)
        return (laid + torch.arange(len(laid)))[start - begins : stop - begins]


class GroupSampler:
    """Samples whole groups of neighbouring rows, for losses that compare the rows of a group."""

    def __init__(self, sizes: Tensor, batch_size: int, seed: int) -> None:
        """Sample groups of `sizes` rows each, laid end to end; a global batch has `batch_size` rows on average."""
        self.rows, self.seed = int(sizes.sum()), seed
        self._sizes, self._starts = sizes, sizes.cumsum(0) - sizes
        self._groups = max(1, round(batch_size * len(sizes) / self.rows))
        self.steps = math.ceil(len(sizes) / self._groups)
        self._known: tuple[int, Tensor] | None = None

    def share(self, epoch: int, step: int, place: int, places: int, micro: int = 1) -> Share:
        """The rows of the process at `place` of `places`, cut into `micro` micro-batches of equal length."""
        batch = self._order(epoch)[step * self._groups : (step + 1) * self._groups]
        pieces = torch.tensor_split(batch, places * micro)
        longest = max(1, max(int(self._sizes[piece].sum()) for piece in pieces))
        rows = torch.zeros(micro, longest, dtype=torch.int64)
        real = torch.zeros(micro, longest, dtype=torch.bool)
        for index, piece in enumerate(pieces[place * micro : (place + 1) * micro]):
            sizes = self._sizes[piece]
            found = torch.repeat_interleave(self._starts[piece] - (sizes.cumsum(0) - sizes), sizes)
            rows[index, : len(found)] = found + torch.arange(len(found))
            real[index, : len(found)] = True
        return Share(rows.flatten(), real.flatten(), int(self._sizes[batch].sum()))

    def _order(self, epoch: int) -> Tensor:
        """Groups of an epoch in order; the last one is remembered."""
        if self._known is None or self._known[0] != epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self._known = epoch, torch.randperm(len(self._sizes), generator=generator)
        return self._known[1]
