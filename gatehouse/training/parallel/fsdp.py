"""Sharded data parallelism (FSDP2): each process keeps a part of every weight, and gathers the rest block by block."""

from torch import nn
from torch.distributed.fsdp import fully_shard

from gatehouse.training.parallel.mesh import Layout


def shard(model: nn.Module, layout: Layout) -> None:
    """Shard a model's parameters over the data axis, in place; its gradients become the mean over that axis.

    Along `replicate`, where the layout has one, shards are repeated: that is how a part of a model is replicated.
    """
    assert layout.mesh is not None
    replicated = layout.mesh["replicate"].size() > 1
    mesh = layout.mesh["replicate", "shard"] if replicated else layout.mesh["shard"]
    blocks = getattr(model, "blocks", None)
    for block in blocks.values() if isinstance(blocks, nn.ModuleDict) else blocks or ():
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
