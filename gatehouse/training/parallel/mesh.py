"""The place of a process along the data, tensor and pipeline axes, and tensors that are spread over processes.

Spread tensors (DTensor) are recognised without importing their package: the import takes as long as torch's own, and a
run whose processes all hold the whole model does not need it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch.distributed as dist
from torch import Tensor

from gatehouse.errors import GatehouseError
from gatehouse.training.spec import ParallelismSpec

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class NotDivisibleError(GatehouseError):
    """A model lacks a property that a parallelism needs."""

    permanent = True


@dataclass(frozen=True)
class Layout:
    """The processes of a run as a box of pipeline x data x tensor, and this process's place in it.

    Tensor neighbours are next to each other in rank, as they communicate most. The data axis is two axes of the mesh,
    `replicate` and `shard`, one of which has size 1. The mesh is None where data is the only axis and every process
    holds the whole model.
    """

    mesh: "DeviceMesh | None"
    data_rank: int
    data_size: int
    tensor_rank: int
    tensor_size: int
    pipeline_rank: int
    pipeline_size: int

    @property
    def last_stage(self) -> bool:
        """Whether this process computes logits and loss."""
        return self.pipeline_rank == self.pipeline_size - 1

    @property
    def leads_data(self) -> bool:
        """Whether this process reports for its share of the rows: the first one that has its logits."""
        return self.last_stage and self.tensor_rank == 0

    @property
    def leads(self) -> bool:
        """Whether this process alone logs the values of a step."""
        return self.leads_data and self.data_rank == 0


def lay_out(spec: ParallelismSpec, device: str) -> Layout:
    """The layout of the current process group, on devices of the kind `cpu` or `cuda`."""
    rank, tensor, pipeline = dist.get_rank(), spec.tensor, spec.pipeline
    data = dist.get_world_size() // spec.model_size
    sharded = spec.data == "fsdp"
    mesh = None
    if sharded or tensor * pipeline > 1:
        from torch.distributed.device_mesh import init_device_mesh

        shape = (pipeline, 1, data, tensor) if sharded else (pipeline, data, 1, tensor)
        mesh = init_device_mesh(device, shape, mesh_dim_names=("pipeline", "replicate", "shard", "tensor"))
    along_data, along_tensor = divmod(rank % (data * tensor), tensor)
    return Layout(mesh, along_data, data, along_tensor, tensor, rank // (data * tensor), pipeline)


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def local(tensor: Tensor) -> Tensor:
    """The part of a spread tensor that this process holds; a plain tensor as it is."""
    spread: Any = tensor
    part: Tensor = spread.to_local() if is_spread(tensor) else tensor
    return part


def offsets_of(tensor: Tensor) -> tuple[int, ...]:
    """Where the part that this process holds begins in the whole tensor, along each axis; zeros for a plain tensor."""
    if not is_spread(tensor):
        return (0,) * tensor.dim()
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    spread: Any = tensor
    return tuple(compute_local_shape_and_global_offset(tensor.shape, spread.device_mesh, spread.placements)[1])


def whole(tensor: Tensor) -> Tensor:
    """A spread tensor in its global shape, gathered from its processes; collective."""
    spread: Any = tensor
    gathered: Tensor = spread.full_tensor() if is_spread(tensor) else tensor
    return gathered


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor, cut as another of its shape is: the gradient of an embedding cut by rows comes whole."""
    spread: Any = tensor
    like: Any = other
    if not is_spread(tensor) or spread.placements == like.placements:
        return tensor
    cut: Tensor = spread.redistribute(like.device_mesh, like.placements)
    return cut


def parts_of(tensor: Tensor) -> int:
    """Into how many parts a tensor is divided; 1 if every process holds all of it."""
    parts = 1
    spread: Any = tensor
    for axis, placement in enumerate(spread.placements if is_spread(tensor) else ()):
        parts *= 1 if placement.is_replicate() else spread.device_mesh.size(axis)
    return parts
