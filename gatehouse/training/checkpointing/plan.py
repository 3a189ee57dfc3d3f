"""Nested training state as flat leaves, and which rank writes which piece of it. Nothing is pickled.

A plan comes from torch.distributed.checkpoint's planner, used as a library; it is made again only when names or shapes
change. Of values that several ranks hold alike, the lowest rank writes them. Where every rank has whole tensors, as
with DDP, no planner is needed, and no rank waits for its import, which takes half as long as torch's.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.errors import ConfigurationError
from gatehouse.training.checkpointing.format import Chunk
from gatehouse.training.parallel.mesh import is_spread

if TYPE_CHECKING:
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.planner import WriteItem

T = TypeVar("T")

PRIVATE = "rank"
"""The entry of the state that belongs to one rank alone, such as its random number generators."""
_ALIGNMENT = 64


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, in their shapes and not copied, and the other values of a nested state, by path.

    A part of a path that begins with `#` was an integer key, one that begins with `@` a place in a list. Lists without
    a tensor inside stay whole; tuples come back as lists.

    Raises:
        ConfigurationError: if the state holds something that is neither a tensor nor JSON, or an ambiguous key.
    """
    leaves = dict(leaf for key, child in state.items() for leaf in _leaves(child, _part(key, "")))
    tensors = {path: leaf for path, leaf in leaves.items() if isinstance(leaf, Tensor)}
    return tensors, {path: leaf for path, leaf in leaves.items() if path not in tensors}


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(node, Tensor):
        yield path, node
    elif isinstance(node, Mapping) and node:
        for key, child in node.items():
            yield from _leaves(child, f"{path}/{_part(key, path)}")
    elif isinstance(node, (list, tuple)) and not _is_json(node):
        for index, child in enumerate(node):
            yield from _leaves(child, f"{path}/@{index}")
    elif _is_json(node):
        yield path, node
    else:
        raise ConfigurationError(
            f"The training state at {path}: expected a tensor or a value that JSON can hold, found "
            f"{type(node).__name__}. Let its state_dict() return numbers, text, lists, dictionaries and tensors."
        )


def _part(key: object, path: str) -> str:
    if isinstance(key, int):
        return f"#{key}"
    if not isinstance(key, str) or "/" in key or key[:1] in ("#", "@", ""):
        raise ConfigurationError(
            f"The training state at {path or 'its top'} has the key {key!r}: expected an integer, or text that has no "
            "slash and does not begin with # or @."
        )
    return key


def _is_json(node: Any) -> bool:
    if isinstance(node, Mapping):
        return all(isinstance(key, str) for key in node) and all(map(_is_json, node.values()))
    if isinstance(node, (list, tuple)):
        return all(map(_is_json, node))
    return isinstance(node, (str, int, float, bool, type(None)))


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """The nested state of which `flatten` returned the leaves."""

    def key_of(part: str) -> str | int:
        return int(part[1:]) if part[0] in "#@" else part

    root: dict[Any, Any] = {}
    lists: list[tuple[dict[Any, Any], Any]] = []
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = root
        for parent, below in pairwise((*parents, last)):
            key = key_of(parent)
            if key not in node and below.startswith("@"):
                lists.append((node, key))
            node = node.setdefault(key, {})
        node[key_of(last)] = leaf
    for node, key in reversed(lists):
        node[key] = [node[key][index] for index in sorted(node[key])]
    return root


@dataclass(frozen=True)
class Plan:
    """What this rank writes.

    Attributes:
        structure: Names, shapes and kinds that the plan was made for.
        items: Pieces of tensors, in the order of `chunks`; empty where each chunk is a whole tensor.
        chunks: Place of each piece in this rank's file.
        bytes: Length of the file.
        values: Paths of the other values that this rank writes.
        uniform: Whether all ranks hold the same paths.
    """

    structure: tuple[Any, ...]
    items: "tuple[WriteItem, ...]"
    chunks: tuple[Chunk, ...]
    bytes: int
    values: frozenset[str]
    uniform: bool

    def pieces(self, tensors: Mapping[str, Tensor]) -> list[Tensor]:
        """The local tensors to be copied, one for each chunk, each of shape `chunk.sizes`."""
        if not self.items:
            return [tensors[chunk.key] for chunk in self.chunks]
        planner = _planner(tensors)
        return [cast(Tensor, planner.resolve_data(item)) for item in self.items]


def structure_of(tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> tuple[Any, ...]:
    """Name, type, shape and placements of each tensor, and names of the values: while it is equal, a plan holds."""
    described = (
        (path, tensor.dtype, tensor.shape, getattr(tensor, "placements", None)) for path, tensor in tensors.items()
    )
    return (*described, *values)


def make_plan(tensors: Mapping[str, Tensor], values: Mapping[str, Any], group: dist.ProcessGroup | None) -> Plan:
    """Agree with all ranks of `group` on which rank writes what; without a group this process writes everything."""
    rank, world_size = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)

    def exchanged(own: T) -> list[T]:
        gathered = [own] * world_size
        if group:
            dist.all_gather_object(gathered, own, group=group)
        return gathered

    every = exchanged((sorted([*tensors, *values]), any(map(is_spread, tensors.values()))))
    lower = {path for paths, _ in every[:rank] for path in paths}
    items: tuple[WriteItem, ...] = ()
    if any(sharded for _, sharded in every):
        planner = _planner(tensors)
        agreed, _ = planner.create_global_plan(exchanged(planner.create_local_plan()))
        items = tuple(agreed[rank].items)
        unplaced: Iterable[Chunk] = map(_chunk, items)
    else:
        unplaced = (_whole(path, tensor) for path, tensor in tensors.items() if path not in lower)
    chunks, end = [], 0
    for chunk in unplaced:
        chunks.append(replace(chunk, at=end))
        end += -(-chunk.bytes // _ALIGNMENT) * _ALIGNMENT
    shared = [[path for path in paths if not path.startswith(f"{PRIVATE}/")] for paths, _ in every]
    return Plan(
        structure=structure_of(tensors, values),
        items=items,
        chunks=tuple(chunks),
        bytes=end,
        values=frozenset(values) - lower,
        uniform=all(paths == shared[0] for paths in shared),
    )


def _whole(path: str, tensor: Tensor) -> Chunk:
    size = tuple(tensor.shape)
    return Chunk(path, _name(tensor.dtype), size, (0,) * tensor.dim(), size, 0, tensor.nbytes)


def _planner(tensors: Mapping[str, Tensor]) -> "DefaultSavePlanner":
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
    )
    planner.set_up_planner(dict(tensors))
    return planner


def _chunk(item: "WriteItem") -> Chunk:
    data = item.tensor_data
    assert data is not None
    dtype, sizes = data.properties.dtype, tuple(data.chunk.sizes)
    length = torch.Size(sizes).numel() * dtype.itemsize
    return Chunk(item.index.fqn, _name(dtype), tuple(data.size), tuple(data.chunk.offsets), sizes, 0, length)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
