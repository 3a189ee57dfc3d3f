"""Shards: the rows of a part that one data-parallel process owns, and reads from its own files.

The order of an epoch, and so the rows of a batch, do not depend on the number of processes. Of each batch, a process
takes the rows of its shard. A row's shard follows from the row's number and the number of shards alone, so neither the
machine of a process nor a restart changes it. Neighbouring rows are in different shards: all shards are alike.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from gatehouse.data.splitting.stable_hash import mix
from gatehouse.training.spec import NetworkTraining, TrainSpec

SIZES = "sizes.npy"
"""File of a divided train part, int64: the rows of every group of all shards; the rows of the part if it has none."""
_AT_ONCE = 1 << 20
Numbers = npt.NDArray[Any]


def shard_count(spec: TrainSpec) -> int:
    """Number of shards of the train part, and of the validation part; 1 if every process reads all rows.

    The rows of a batch are not spread evenly over shards. A pipeline's buffers and a compiled graph need batches of one
    size, so these are cut anew in each batch.
    """
    if not isinstance(spec, NetworkTraining):
        return spec.parallelism.processes
    return 1 if has_one_shape(spec) else spec.parallelism.data_size


def has_one_shape(spec: NetworkTraining) -> bool:
    """Whether all batches of a process must have one shape."""
    return spec.parallelism.pipeline > 1 or spec.compute.compile


def shard_of_rank(spec: TrainSpec, rank: int) -> int:
    """The shard of a process: neighbours along the tensor axis read the same rows."""
    return rank // spec.parallelism.tensor if isinstance(spec, NetworkTraining) else rank


def shards_of(rows: Numbers, count: int) -> Numbers:
    """The shard of each row, by its number: each `count` rows from a multiple of `count` on are in different shards.

    The place of a row in its shard is therefore its number divided by `count`.
    """
    blocks = rows // count
    return (rows + (mix(blocks.astype(np.uint64)) % np.uint64(count)).astype(np.int64)) % count


def shards_of_groups(sizes: Numbers, count: int) -> Numbers:
    """The shard of each group, by the number of its rows: the rows of two shards differ by one group at most."""
    by_size = np.empty(len(sizes), np.int64)
    by_size[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    return shards_of(by_size, count)


class Division:
    """The shard of every row of a part, and the row's place in it; arrays of shape (rows,)."""

    def __init__(self, shards: Numbers, count: int) -> None:
        """Rows keep their order."""
        self.shards, self.places = shards, np.empty(len(shards), np.uint32)
        self.lengths = [0] * count
        for shard in range(count):
            own = np.flatnonzero(shards == shard)
            self.lengths[shard] = len(own)
            self.places[own] = np.arange(len(own), dtype=np.uint32)

    @classmethod
    def of_train(cls, rows: int, sizes: Numbers | None, count: int) -> "Division":
        """Shards of rows that stand alone, or of groups of `sizes` rows, laid end to end."""
        if sizes is not None:
            return cls(np.repeat(shards_of_groups(sizes, count).astype(np.uint16), sizes), count)
        shards = np.empty(rows, np.uint16)
        for start in range(0, rows, _AT_ONCE):
            end = min(start + _AT_ONCE, rows)
            shards[start:end] = shards_of(np.arange(start, end), count)
        return cls(shards, count)

    @classmethod
    def of_validation(cls, rows: int, count: int) -> "Division":
        """Shards of equal length, one after another: rows that are missing at the end are zeros, and are not scored."""
        share = -(-rows // count)
        division = cls((np.arange(rows) // share).astype(np.uint16), count)
        division.lengths = [share] * count
        return division
