"""Reads a checkpoint into the state of a run, with the same number of processes or another."""

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from gatehouse.training.checkpointing.format import CheckpointStore, Chunk, Saved
from gatehouse.training.checkpointing.plan import PRIVATE, is_spread
from gatehouse.training.checkpointing.tree import flatten, unflatten


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

    chunks = [(number, chunk) for number, part in enumerate(parts) for chunk in part.chunks if wanted(chunk.key)]
    targets = {chunk.key: _target(chunk, current.get(_public(chunk.key, mine))) for _, chunk in chunks}
    mapped: dict[int, Tensor] = {}

    def piece(number: int, chunk: Chunk) -> Tensor:
        if number not in mapped:
            mapped[number] = _map(store.file(saved, parts[number]))
        return mapped[number][chunk.at : chunk.at + chunk.bytes].view(getattr(torch, chunk.dtype)).view(chunk.sizes)

    if any(map(is_spread, targets.values())):
        # Its import takes half as long as that of torch, and whole tensors do without.
        from gatehouse.training.checkpointing.sharded_reader import fill

        fill(targets, chunks, piece)
    else:
        for number, chunk in chunks:
            place = targets[chunk.key]
            for axis, (start, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
                place = place.narrow(axis, start, length)
            place.copy_(piece(number, chunk))
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


def _map(path: Path) -> Tensor:
    with open(path, "rb") as stream:
        # Copy on write: torch takes no memory that it may not write to.
        memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
    return torch.frombuffer(memory, dtype=torch.uint8)
