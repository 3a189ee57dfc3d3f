"""Reads a checkpoint into the state of a run, with the same number of processes or another."""

import mmap
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from gatehouse.training.checkpointing.format import CheckpointStore, Chunk, Saved
from gatehouse.training.checkpointing.plan import PRIVATE, flatten, unflatten
from gatehouse.training.parallel.mesh import is_spread


def read_state(store: CheckpointStore, saved: Saved, state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The state of one rank as the checkpoint has it, nested as in `state_dict()`.

    Tensors of `state` that have the shape of the saved ones are filled in place, sharded ones piece by piece. A tensor
    that `state` does not have comes whole, unless ranks hold different names: then only the names of `state` are read.
    The entry `rank` comes from the rank of the same number, and is left out where there was none.

    Raises:
        TornCheckpointError: if a part or file is not as the manifest says.
    """
    parts = [store.part(saved, number) for number in range(saved.world_size)]
    own = f"{PRIVATE}/{rank}/"

    def public(path: str) -> str:
        """The path `rank/3/generators` as the state of rank 3 names it."""
        return f"{PRIVATE}/{path.removeprefix(own)}" if path.startswith(own) else path

    current, values = flatten(state)
    names = current.keys() | values.keys()

    def is_read(path: str) -> bool:
        if path.startswith(f"{PRIVATE}/"):
            return path.startswith(own)
        return saved.uniform or path in names

    chunks = [(number, chunk) for number, part in enumerate(parts) for chunk in part.chunks if is_read(chunk.key)]
    targets: dict[str, Tensor] = {}
    for _, chunk in chunks:
        target, dtype = current.get(public(chunk.key)), getattr(torch, chunk.dtype)
        if target is None or tuple(target.shape) != chunk.size or target.dtype != dtype:
            target = torch.empty(chunk.size, dtype=dtype)
        targets.setdefault(chunk.key, target.detach())
    mapped: dict[int, Tensor] = {}

    def piece(number: int, chunk: Chunk) -> Tensor:
        if number not in mapped:
            with open(store.file(saved, parts[number]), "rb") as stream:
                # Copy on write, as torch takes no read-only memory.
                memory = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
            mapped[number] = torch.frombuffer(memory, dtype=torch.uint8)
        return mapped[number][chunk.at : chunk.at + chunk.bytes].view(getattr(torch, chunk.dtype)).view(chunk.sizes)

    if any(map(is_spread, targets.values())):
        # Its import takes half as long as torch's, and whole tensors do without.
        from gatehouse.training.checkpointing.sharded_reader import fill

        fill(targets, chunks, piece)
    else:
        for number, chunk in chunks:
            place = targets[chunk.key]
            for axis, (start, length) in enumerate(zip(chunk.offsets, chunk.sizes, strict=True)):
                place = place.narrow(axis, start, length)
            place.copy_(piece(number, chunk))
    leaves = {path: value for part in parts for path, value in part.values.items() if is_read(path)}
    return unflatten({public(path): leaf for path, leaf in (leaves | targets).items()})
