"""Where a process stands: its place along the data, tensor and pipeline axes, as one DeviceMesh."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.distributed as dist

from gatehouse.training.parallel.spec import ParallelismSpec

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


@dataclass(frozen=True)
class Layout:
    """The processes of a run as a box of pipeline x data x tensor, and this process's place in it.

    Tensor neighbours are next to each other in rank, as they talk most. The data axis is two axes of the mesh,
    `replicate` and `shard`, one of which has size 1.

    Attributes:
        mesh: None where data is the only axis and every process holds the whole model.
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
        """Whether this process speaks for its share of the rows: it has the logits, and is the first that has them."""
        return self.last_stage and self.tensor_rank == 0

    @property
    def leads(self) -> bool:
        """Whether this process alone logs what a step gave."""
        return self.leads_data and self.data_rank == 0


def lay_out(spec: ParallelismSpec, device: str) -> Layout:
    """The layout of the current process group.

    Args:
        spec: How many processes share what.
        device: Kind of device that every process computes on, `cpu` or `cuda`.

    Raises:
        ValueError: if the number of its members is no multiple of tensor x pipeline.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    tensor, pipeline = spec.tensor, spec.pipeline
    data, left = divmod(world_size, tensor * pipeline)
    if left:
        raise ValueError(
            f"{world_size} processes started; expected a multiple of {tensor} x {pipeline} (tensor, pipeline)"
        )
    sharded = spec.data == "fsdp"
    mesh = None
    if sharded or tensor * pipeline > 1:
        from torch.distributed.device_mesh import init_device_mesh

        shape = (pipeline, 1, data, tensor) if sharded else (pipeline, data, 1, tensor)
        mesh = init_device_mesh(device, shape, mesh_dim_names=("pipeline", "replicate", "shard", "tensor"))
    along_data, along_tensor = divmod(rank % (data * tensor), tensor)
    return Layout(mesh, along_data, data, along_tensor, tensor, rank // (data * tensor), pipeline)
