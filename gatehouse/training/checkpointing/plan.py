"""Who writes which piece of the training state: torch.distributed.checkpoint's planner as a library.

The plan is made once, and again only when names or shapes change. What several ranks hold alike is written by the
lowest of them. Where every rank has whole tensors, as with DDP, no planner is needed, and no rank waits for its import,
which takes half as long as that of torch.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.training.checkpointing.format import Chunk

if TYPE_CHECKING:
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
    from torch.distributed.checkpoint.planner import WriteItem

T = TypeVar("T")

PRIVATE = "rank"
"""The entry of the state that belongs to one rank alone, as its random number generators do."""
_ALIGNMENT = 64


@dataclass(frozen=True)
class Plan:
    """What this rank writes.

    Attributes:
        structure: Names, shapes and kinds that the plan was made for.
        items: Pieces of tensors, in the order of `chunks`; none where each chunk is a whole tensor.
        chunks: Where each lies in this rank's file.
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
    return (
        *((path, each.dtype, each.shape, getattr(each, "placements", None)) for path, each in tensors.items()),
        *values,
    )


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor of any shape is spread over processes (a DTensor), told without importing that package."""
    return hasattr(tensor, "device_mesh")


def make_plan(tensors: Mapping[str, Tensor], values: Mapping[str, Any], group: dist.ProcessGroup | None) -> Plan:
    """Agree with all ranks of `group` on which rank writes what; without a group this process writes everything.

    Args:
        tensors: The tensors by name, of any shape; a sharded one has the same global shape on every rank.
        values: The other values of the state, by name.
        group: The processes that write one checkpoint together.
    """
    rank, world_size = (dist.get_rank(group), dist.get_world_size(group)) if group else (0, 1)
    mine = _Held(sorted(tensors), sorted(values), any(map(is_spread, tensors.values())))
    held = _exchanged(mine, world_size, group)
    lower = {path for each in held[:rank] for path in (*each.tensors, *each.values)}
    if any(each.sharded for each in held):
        planner = _planner(tensors)
        agreed, _ = planner.create_global_plan(_exchanged(planner.create_local_plan(), world_size, group))
        items = tuple(agreed[rank].items)
        chunks, end = _laid_out(map(_chunk, items))
    else:
        items = ()
        chunks, end = _laid_out(_whole(path, each) for path, each in tensors.items() if path not in lower)
    shared = [[path for path in (*each.tensors, *each.values) if not path.startswith(f"{PRIVATE}/")] for each in held]
    return Plan(
        structure=structure_of(tensors, values),
        items=items,
        chunks=chunks,
        bytes=end,
        values=frozenset(values) - lower,
        uniform=all(each == shared[0] for each in shared),
    )


class _Held(NamedTuple):
    """What a rank tells the others: its tensors and values by path, and whether any tensor is sharded."""

    tensors: list[str]
    values: list[str]
    sharded: bool


def _exchanged(mine: T, world_size: int, group: dist.ProcessGroup | None) -> list[T]:
    """What each rank has said, by rank."""
    said = [mine] * world_size
    if group:
        dist.all_gather_object(said, mine, group=group)
    return said


def _whole(path: str, tensor: Tensor) -> Chunk:
    size = tuple(tensor.shape)
    return Chunk(path, _name(tensor.dtype), size, (0,) * tensor.dim(), size, 0, tensor.nbytes)


def _laid_out(chunks: Iterable[Chunk]) -> tuple[tuple[Chunk, ...], int]:
    """The chunks one after another, and where the last ends."""
    placed, end = [], 0
    for chunk in chunks:
        placed.append(replace(chunk, at=end))
        end += -(-chunk.bytes // _ALIGNMENT) * _ALIGNMENT
    return tuple(placed), end


def _planner(tensors: Mapping[str, Tensor]) -> "DefaultSavePlanner":
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    planner = DefaultSavePlanner(
        flatten_state_dict=False, flatten_sharded_tensors=False, dedup_save_to_lowest_rank=True
    )
    planner.set_up_planner(dict(tensors))
    return planner


def _chunk(item: "WriteItem") -> Chunk:
    data = item.tensor_data
    if data is None:
        raise TypeError(f"{item.index.fqn}: expected a tensor")
    dtype, sizes = data.properties.dtype, tuple(data.chunk.sizes)
    length = torch.Size(sizes).numel() * dtype.itemsize
    return Chunk(item.index.fqn, _name(dtype), tuple(data.size), tuple(data.chunk.offsets), sizes, 0, length)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
