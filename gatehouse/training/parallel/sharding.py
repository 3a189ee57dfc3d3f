"""Sharded data parallelism (FSDP2), and tensor parallelism: linear layers cut by columns or rows."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from gatehouse.training.parallel.mesh import Layout, NotDivisibleError


def shard(model: nn.Module, layout: Layout) -> None:
    """Shard a model's parameters over the data axis, in place; its gradients become the mean over that axis.

    Each process keeps a part of every weight, and gathers the rest block by block. Along `replicate`, where the layout
    has it, shards are repeated: that is how a part of a model is replicated.
    """
    assert layout.mesh is not None
    replicated = layout.mesh["replicate"].size() > 1
    mesh = layout.mesh["replicate", "shard"] if replicated else layout.mesh["shard"]
    blocks = getattr(model, "blocks", None)
    for block in blocks.values() if isinstance(blocks, nn.ModuleDict) else blocks or ():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


class CutDropout(ParallelStyle):
    """Dropout of an activation that is cut by columns: each process draws the whole mask, and takes its own columns.

    Tensor neighbours draw alike, so the mask is the one that a single process draws, and no two columns share theirs.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        assert isinstance(module, nn.Dropout)
        rank, size, share = device_mesh.get_local_rank(), device_mesh.size(), module.p

        def forward(values: Tensor) -> Tensor:
            width = values.shape[-1]
            ones = torch.ones(*values.shape[:-1], width * size, dtype=values.dtype, device=values.device)
            mask = nn.functional.dropout(ones, share, module.training)
            return values * mask.narrow(-1, rank * width, width)

        module.forward = forward  # type: ignore[method-assign, assignment]  # the module keeps its place and name
        return module


_STYLES: dict[str, type[ParallelStyle]] = {"columns": ColwiseParallel, "rows": RowwiseParallel, "dropout": CutDropout}


def plan_of(model: nn.Module) -> dict[str, str]:
    """The cut of each layer of a whole model by module name: `columns`, `rows`, or `dropout` after `columns`."""
    plan: Callable[[], dict[str, str]] | None = getattr(model, "tensor_plan", None)
    if plan is None:
        raise NotDivisibleError(
            f"{type(model).__name__} cannot be tensor-parallel: it has no method tensor_plan() (docs/training.md). Add "
            "one, or set parallelism.tensor to 1."
        )
    return plan()


def divide(part: nn.Module, plan: dict[str, str], layout: Layout) -> None:
    """Cut the layers of a model or a stage that a plan for the whole model names, in place."""
    assert layout.mesh is not None
    present = {name for name, _ in part.named_modules()}
    styles = {name: _STYLES[how]() for name, how in plan.items() if name in present}
    parallelize_module(part, layout.mesh["tensor"], styles)
