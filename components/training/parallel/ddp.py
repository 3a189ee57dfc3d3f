"""Replicated data parallelism: every process holds the whole model, and gradients are averaged while they are made."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gatehouse.components.training.spec import TrainSpec


def replicate(model: nn.Module, spec: TrainSpec) -> nn.Module:
    """Wrap a whole model; its gradients become the mean over all processes.

    A part of a model (tensor or pipeline parallel) is replicated by `fsdp.shard` along a mesh axis of its own.
    """
    return DistributedDataParallel(model, static_graph=not spec.activation_checkpointing and spec.accumulation == 1)
