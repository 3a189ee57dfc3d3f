"""Replicated data parallelism: every process holds the whole model, and gradients are averaged while they are made."""

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gatehouse.components.training.spec import NetworkTraining


def replicate(model: nn.Module, spec: NetworkTraining) -> nn.Module:
    """Wrap a whole model; its gradients become the mean over all processes.

    A part of a model (tensor or pipeline parallel) is replicated by `fsdp.shard` along a mesh axis of its own.
    """
    if dist.get_world_size() > 2:
        # DDP lays gradients out anew after its first step, and the order of gloo's sums over more than two processes
        # follows from that layout: a resumed run, whose first step is another, would end in other bits. Not with this.
        return DistributedDataParallel(model, find_unused_parameters=True)
    static = not spec.compute.activation_checkpointing and spec.data.accumulation == 1
    return DistributedDataParallel(model, static_graph=static)
