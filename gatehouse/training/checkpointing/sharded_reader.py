"""Fills the shards of a run from a checkpoint of any number of processes, with torch.distributed.checkpoint."""

import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from gatehouse.training.checkpointing.format import Chunk

Piece = Callable[[int, Chunk], Tensor]
"""Reads the saved tensor of a chunk, of shape `chunk.sizes`, from the part of the rank with this number."""


def fill(targets: dict[str, Tensor], chunks: Iterable[tuple[int, Chunk]], piece: Piece) -> None:
    """Copy saved chunks, each with the number of the rank that wrote it, into tensors of the saved global shapes.

    Of a sharded tensor, only the part that this rank holds is filled.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # Each rank reads by itself.
        load(targets, storage_reader=_Reader(chunks, piece), planner=_Planner(), no_dist=True)


class _Planner(DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)


class _Reader(StorageReader):
    """Gives the planner the saved chunks, and copies the pieces that it asks for out of the mapped files."""

    def __init__(self, chunks: Iterable[tuple[int, Chunk]], piece: Piece) -> None:
        self._where = {(chunk.key, chunk.offsets): (number, chunk) for number, chunk in chunks}
        self._piece = piece

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between loads."""

    def read_metadata(self, *arguments: Any, **options: Any) -> Metadata:
        """Names, shapes and chunks of what is wanted."""
        metadata: dict[str, Any] = {}
        for _, chunk in self._where.values():
            properties = TensorProperties(dtype=getattr(torch, chunk.dtype))
            fresh = TensorStorageMetadata(properties, torch.Size(chunk.size), [])
            entry = metadata.setdefault(chunk.key, fresh)
            entry.chunks.append(ChunkStorageMetadata(torch.Size(chunk.offsets), torch.Size(chunk.sizes)))
        return Metadata(metadata)

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **options: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Files are read piece by piece in any order."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Ranks read without each other."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> "Future[None]":
        """Copy every piece of the plan into its place."""
        for item in plan.items:
            index = item.storage_index
            source = self._piece(*self._where[index.fqn, tuple(index.offset or ())])
            for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                source = source.narrow(axis, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Checkpoints are named by the store and not by an id."""
        return False
