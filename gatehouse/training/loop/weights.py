"""The weights that come out: whole tensors, gathered from all processes, in one safetensors file."""

from pathlib import Path

import torch.distributed as dist
from safetensors.torch import save_file
from torch import Tensor

from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.parallel.spread import whole


def save_weights(weights: dict[str, Tensor], path: Path, layout: Layout) -> None:
    """Gather the weights of all processes, and let rank 0 write them; call it on every process.

    Args:
        weights: Tensors by name, of any shape; a sharded one is written whole, in its global shape.
        path: The safetensors file to write.
        layout: The place of this process among all.
    """
    gathered = {name: whole(tensor).cpu() for name, tensor in weights.items()}
    if layout.pipeline_size > 1:
        gathered = _of_all_stages(gathered, layout)
    if dist.get_rank() == 0:
        save_file({name: tensor.contiguous() for name, tensor in gathered.items()}, path)
    dist.barrier()


def _of_all_stages(weights: dict[str, Tensor], layout: Layout) -> dict[str, Tensor]:
    """The weights of every stage, on the first stage's processes; elsewhere only the own ones."""
    assert layout.mesh is not None
    group = layout.mesh["pipeline"].get_group()
    first = layout.pipeline_rank == 0
    stages: list[dict[str, Tensor]] | None = [{}] * layout.pipeline_size if first else None
    dist.gather_object(weights, stages, group=group, group_dst=0)
    return {name: tensor for stage in stages for name, tensor in stage.items()} if stages else weights
