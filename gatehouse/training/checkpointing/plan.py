"""Nested training state as flat leaves: which rank writes which leaf, and how leaves are read. Nothing is pickled.

A plan is made again only when names or shapes change. The lowest rank writes what several ranks hold alike.
"""

import mmap
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.errors import ConfigurationError
from gatehouse.training.checkpointing.format import CheckpointStore, Chunk, Saved
from gatehouse.training.parallel.mesh import local, offsets_of

PRIVATE = "rank"  # the entry of the state that belongs to one rank alone, such as its random number generators
_ALIGNMENT = 64


def flatten(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, not copied, and the other values of nested dictionaries, by path such as `model/head.weight`.

    The other values are JSON; a list is one value.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for key, child in state.items():
        if "/" in key:
            raise ConfigurationError(f"The training state has the name {key!r}: expected one without a slash.")
        path = f"{prefix}{key}"
        if isinstance(child, Mapping) and child:
            below = flatten(child, f"{path}/")
            tensors, values = tensors | below[0], values | below[1]
        elif isinstance(child, Tensor):
            tensors[path] = child
        else:
            values[path] = child
    return tensors, values


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild the nested state from the leaves of `flatten`."""
    root: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return root


@dataclass(frozen=True)
class Plan:
    """What this rank writes: the place of each tensor, or of its part, in its file, and the paths of other values.

    It holds for the names, shapes and placements of `structure`, and is `uniform` if all ranks hold the same paths.
    """

    structure: tuple[Any, ...]
    chunks: tuple[Chunk, ...]
    bytes: int
    values: frozenset[str]
    uniform: bool


def structure_of(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Name, type, shape and placements of each tensor, and names of the values: while it is equal, a plan holds."""
    described = (
        (path, tensor.dtype, tensor.shape, getattr(tensor, "placements", None)) for path, tensor in tensors.items()
    )
    return (*described, *values)


def make_plan(tensors: Mapping[str, Tensor], values: Mapping[str, Any], group: dist.ProcessGroup | None) -> Plan:
    """Agree with all ranks of `group` on which rank writes what; without a group this process writes everything."""
    chunks = {}
    for path, tensor in tensors.items():
        part, dtype = local(tensor), str(tensor.dtype).removeprefix("torch.")
        chunk = Chunk(path, dtype, tuple(tensor.shape), offsets_of(tensor), tuple(part.shape), 0, part.nbytes)
        chunks[path, chunk.offsets] = chunk
    paths = sorted([*tensors, *values])
    rank, everywhere = 0, [(paths, chunks.keys() | {(path, ()) for path in values})]
    if group:
        rank = dist.get_rank(group)
        everywhere *= dist.get_world_size(group)
        dist.all_gather_object(everywhere, everywhere[0], group=group)
    lower = {place for _, places in everywhere[:rank] for place in places}
    placed, end = [], 0
    for place, chunk in chunks.items():
        if place not in lower:
            placed.append(replace(chunk, at=end))
            end += -(-chunk.bytes // _ALIGNMENT) * _ALIGNMENT
    shared = [[path for path in paths if not path.startswith(f"{PRIVATE}/")] for paths, _ in everywhere]
    return Plan(
        structure=structure_of(tensors, values),
        chunks=tuple(placed),
        bytes=end,
        values=frozenset(path for path in values if (path, ()) not in lower),
        uniform=all(paths == shared[0] for paths in shared),
    )


def read_state(store: CheckpointStore, saved: Saved, state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The state of one rank as a checkpoint of as many ranks has it, nested as in `state_dict()`.

    Tensors of `state` that have the shape of the saved ones are filled in place; a rank fills its own part of a spread
    one. A tensor that `state` does not have comes whole, unless ranks hold different names: then only the names of
    `state` are read. The entry `rank` comes from the rank of the same number.
    """
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

    leaves: dict[str, Any] = {}
    for number in range(saved.world_size):
        part = store.part(saved, number)
        leaves |= {public(path): value for path, value in part.values.items() if is_read(path)}
        memory = None
        for chunk in part.chunks:
            if not is_read(chunk.key):
                continue
            path, dtype = public(chunk.key), getattr(torch, chunk.dtype)
            target = leaves.get(path, current.get(path))
            if target is None or tuple(target.shape) != chunk.size or target.dtype != dtype:
                target = torch.empty(chunk.size, dtype=dtype)
            leaves[path] = target = target.detach()
            if not chunk.bytes or (offsets_of(target), tuple(local(target).shape)) != (chunk.offsets, chunk.sizes):
                continue
            if memory is None:
                with open(store.file(saved, part), "rb") as stream:
                    # Copy on write, as torch takes no read-only memory.
                    mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)
                memory = torch.frombuffer(mapped, dtype=torch.uint8)
            local(target).copy_(memory[chunk.at : chunk.at + chunk.bytes].view(dtype).view(chunk.sizes))
    return unflatten(leaves)
