"""Reads a checkpoint into the state of a run, on the same world or another, with torch.distributed.checkpoint."""

import mmap
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from gatehouse.components.training.checkpointing.format import CheckpointStore, Chunk, Part, Saved
from gatehouse.components.training.checkpointing.plan import PRIVATE
from gatehouse.components.training.checkpointing.tree import flatten, unflatten


def read_state(store: CheckpointStore, saved: Saved, state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The state of one rank as the checkpoint has it, nested as `state_dict()` gave it.

    Tensors of `state` that have the shape of the saved ones are filled in place, sharded ones piece by piece. What a
    fresh state does not have yet (an optimizer's moments) comes whole, unless ranks hold different names: then only
    what `state` names is read. The entry `rank` comes from the rank of the same number, and is left out where there was
    none.

    Raises:
        TornCheckpointError: if a part or file is not as the manifest says.
    """
    parts = [store.part(saved, each) for each in range(saved.world_size)]
    mine = f"{PRIVATE}/{rank}/"
    current, others = flatten(state)
    known = {_public(path) for path in (*current, *others)}

    def wanted(path: str) -> bool:
        if path.startswith(f"{PRIVATE}/"):
            return path.startswith(mine)
        return saved.uniform or path in known

    chunks = {chunk.key: chunk for part in parts for chunk in part.chunks if wanted(chunk.key)}
    targets = {path: _target(chunk, current.get(_public(path, mine))) for path, chunk in chunks.items()}
    reader = _Reader(store, saved, parts, frozenset(targets))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")  # Each rank reads by itself.
        load(targets, storage_reader=reader, planner=_Planner(), no_dist=True)
    values = {path: value for part in parts for path, value in part.values.items() if wanted(path)}
    return unflatten({_public(path, mine): leaf for path, leaf in (*values.items(), *targets.items())})


def _public(path: str, mine: str = "") -> str:
    """`rank/3/random` as the state of rank 3 calls it."""
    return f"{PRIVATE}/{path.removeprefix(mine)}" if mine and path.startswith(mine) else path


def _target(chunk: Chunk, current: Tensor | None) -> Tensor:
    dtype = getattr(torch, chunk.dtype)
    if current is not None and tuple(current.shape) == chunk.size and current.dtype == dtype:
        return current.detach()
    return torch.empty(chunk.size, dtype=dtype)


class _Planner(DefaultLoadPlanner):
    def __init__(self) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)


class _Reader(StorageReader):
    """Gives the planner the saved chunks, and copies the pieces that it asks for out of the mapped files."""

    def __init__(self, store: CheckpointStore, saved: Saved, parts: list[Part], names: frozenset[str]) -> None:
        self._store, self._saved, self._parts, self._names = store, saved, parts, names
        self._where: dict[tuple[str, tuple[int, ...]], tuple[int, Chunk]] = {}
        self._mapped: dict[int, Tensor] = {}

    def reset(self, checkpoint_id: Any = None) -> None:
        """Nothing is kept between loads."""

    def read_metadata(self, *arguments: Any, **options: Any) -> Metadata:
        """Names, shapes and chunks of what is wanted."""
        metadata: dict[str, Any] = {}
        for number, part in enumerate(self._parts):
            for chunk in part.chunks:
                if chunk.key in self._names:
                    self._where[chunk.key, chunk.offsets] = number, chunk
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
            source = self._piece(item.storage_index)
            for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
                source = source.narrow(axis, start, length)
            target = planner.resolve_tensor(item).detach()
            target.copy_(source)
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _piece(self, index: MetadataIndex) -> Tensor:
        number, chunk = self._where[index.fqn, tuple(index.offset or ())]
        if number not in self._mapped:
            self._mapped[number] = _map(self._store.file(self._saved, self._parts[number]))
        piece = self._mapped[number][chunk.at : chunk.at + chunk.bytes]
        return piece.view(getattr(torch, chunk.dtype)).view(chunk.sizes)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Checkpoints are named by the store and not by an id."""
        return False


def _map(path: Path) -> Tensor:
    with open(path, "rb") as stream:
        # Copy on write: torch takes no memory that it may not write to.
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    return torch.frombuffer(memory, dtype=torch.uint8)
