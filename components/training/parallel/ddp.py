"""Replicated data parallelism: every process holds the whole model, and gradients are averaged while they are made."""

from torch import nn
from torch.nn.parallel import DistributedDataParallel


def replicate(model: nn.Module) -> nn.Module:
    """Wrap a whole model; its gradients become the mean over all processes.

    DDP puts gradients into buckets, and after the first step of a process puts them together anew, in the order in
    which they came. The place of a number in its bucket decides in which order more than two processes add it: a run
    that resumes would add otherwise in its first step than the run that went on, and end in other bits. Where DDP has
    to look for unused parameters, it leaves the buckets as they are.

    A part of a model (tensor or pipeline parallel) is replicated by `fsdp.shard` along a mesh axis of its own.
    """
    return DistributedDataParallel(model, find_unused_parameters=True)
