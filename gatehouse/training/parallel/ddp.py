"""Replicated data parallelism: every process holds the whole model, and gradients are averaged while they are made."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gatehouse.training.spec import NetworkTraining


class Replicated(DistributedDataParallel):
    """DDP for a model that is not compiled, without torch's compiler: to import it takes seconds of every start."""

    # As torch has it, this imports the compiler only to tell it to leave the forward pass alone.
    _inside_ddp_forward = contextmanager(inspect.unwrap(DistributedDataParallel._inside_ddp_forward))


@contextmanager
def _without_compiler() -> Iterator[None]:
    """While open, what DDP asks the compiler is answered here: whether its own hooks average a compiled model."""
    if "_dynamo" in vars(torch):
        yield
        return
    answers = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
    vars(torch)["_dynamo"] = SimpleNamespace(utils=answers)
    try:
        yield
    finally:
        del vars(torch)["_dynamo"]


def replicate(model: nn.Module, spec: NetworkTraining) -> nn.Module:
    """Wrap a whole model; its gradients become the mean over all processes.

    A part of a model (tensor or pipeline parallel) is replicated by `fsdp.shard` along a mesh axis of its own.
    """
    if spec.compute.compile:
        return _replicated(DistributedDataParallel, model, spec)
    with _without_compiler():
        return _replicated(Replicated, model, spec)


def _replicated(kind: type[DistributedDataParallel], model: nn.Module, spec: NetworkTraining) -> nn.Module:
    if dist.get_world_size() > 2:
        # DDP lays gradients out anew after its first step, and the order of gloo's sums over more than two processes
        # follows from that layout: a resumed run, whose first step is another, would end in other bits. Not with this.
        return kind(model, find_unused_parameters=True)
    static = not spec.compute.activation_checkpointing and spec.data.accumulation == 1
    return kind(model, static_graph=static)
