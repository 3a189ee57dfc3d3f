"""Spreads a model over processes from outside: activations, compilation, DDP, and the order of all parallelisms.

FSDP and tensor parallelism are in `sharding.py`, pipelines in `pipeline.py`; a run that needs neither imports neither.
"""

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from gatehouse.training.batches import Batch
from gatehouse.training.compute import autocast
from gatehouse.training.loss import Loss, scaled
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.spec import NetworkTraining


class Execution(Protocol):
    """Runs this process's part of the model."""

    part: nn.Module

    def backward(self, batch: Batch, factor: float) -> Tensor:
        """Add the gradient of `factor` (over 0) times the batch's loss, micro-batch by micro-batch; returns the loss.

        The loss is the weighted sum over the batch's rows, of shape () and in fp32, and zero where this process has no
        logits. Where it is not finite, the gradient is not finite either.
        """

    def score(self, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """Logits in fp32, shape (rows,) or (rows, classes); None where this process has none."""


class Direct:
    """Every process computes its rows from end to end."""

    def __init__(
        self, model: nn.Module, part: nn.Module, spec: NetworkTraining, loss: Loss, device: torch.device
    ) -> None:
        self.part = part
        self._model, self._spec, self._loss, self._device = model, spec, loss, device

    def backward(self, batch: Batch, factor: float) -> Tensor:
        """See `Execution.backward`: gradients are exchanged with the last micro-batch only."""
        if not self.part.training:  # `train` visits every module.
            self.part.train()
        # FSDP2 adds this to the module's own class.
        set_exchange: Callable[[bool], None] | None = getattr(self._model, "set_requires_gradient_sync", None)
        micro = batch.split(self._spec.data.accumulation)
        total = torch.zeros((), device=self._device)
        for index, rows in enumerate(micro):
            exchange = index == len(micro) - 1
            waiting: AbstractContextManager[Any] = nullcontext()
            if isinstance(self._model, DistributedDataParallel):
                waiting = waiting if exchange else self._model.no_sync()
            elif set_exchange:
                set_exchange(exchange)
            with waiting:
                with autocast(self._spec.compute):
                    logits = self._model(rows.numbers, rows.ids)
                loss = self._loss.total(logits.float(), rows.labels, rows.weights, rows.groups)
                torch.autograd.backward(scaled(loss, factor))
            total += loss.detach()
        return total

    def score(self, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """See `Execution.score`."""
        self.part.eval()
        with torch.no_grad(), autocast(self._spec.compute):
            logits: Tensor = self._model(numbers, ids)
        return logits.float()


def parallelize(
    model: nn.Module, spec: NetworkTraining, layout: Layout, loss: Loss, device: torch.device, rows: int
) -> Execution:
    """Spread a model over the processes of a layout: cut it into stages, divide its products, then share its rows."""
    if layout.mesh is None:
        part = _prepared(model.to(device), spec)
        return Direct(replicate(part, spec) if layout.data_size > 1 else part, part, spec, loss, device)
    from gatehouse.training.parallel.pipeline import Pipelined, stage_of
    from gatehouse.training.parallel.sharding import divide, plan_of, shard

    part = stage_of(model, layout) if layout.pipeline_size > 1 else model
    if layout.tensor_size > 1:
        divide(part.to(device), plan_of(model), layout)
    _prepared(part.to(device), spec)
    if layout.data_size > 1:
        shard(part, layout)
    if layout.pipeline_size > 1:
        return Pipelined(part, spec, layout, loss, device, rows)
    return Direct(part, part, spec, loss, device)


def _prepared(part: nn.Module, spec: NetworkTraining) -> nn.Module:
    """Checkpoint the activations of a model's blocks, and compile these, as the settings say; weights keep their names.

    A model without blocks is one block. Equal blocks are compiled once.
    """
    children, blocks = getattr(part, "blocks", None), [part]
    if isinstance(children, nn.ModuleDict | nn.ModuleList):
        blocks = list(children.values() if isinstance(children, nn.ModuleDict) else children)
    for block in blocks:
        if spec.compute.activation_checkpointing:
            block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
        if spec.compute.compile:
            block.compile()
    return part


class Replicated(DistributedDataParallel):
    """DDP for a model that is not compiled, without torch's compiler, whose import takes seconds of every start."""

    # Torch's decorator imports the compiler only to exclude the forward pass from it.
    _inside_ddp_forward = contextmanager(inspect.unwrap(DistributedDataParallel._inside_ddp_forward))


def replicate(model: nn.Module, spec: NetworkTraining) -> nn.Module:
    """Wrap a whole model in DDP; its gradients become the mean over all processes.

    A part of a model (tensor or pipeline parallel) is replicated by `sharding.shard` along a mesh axis of its own.
    """
    if dist.get_world_size() > 2:
        # DDP changes the layout of gradients after its first step, and the order of gloo's sums over more than two
        # processes follows that layout: a resumed run, with another first step, would end in other bits.
        options = {"find_unused_parameters": True}
    else:
        static = not spec.compute.activation_checkpointing and spec.data.accumulation == 1
        options = {"static_graph": static}
    if spec.compute.compile:
        return DistributedDataParallel(model, **options)  # type: ignore[arg-type]  # flags
    # DDP asks the compiler whether its own hooks average a compiled model: answer without importing it.
    imported = "_dynamo" in vars(torch)
    if not imported:
        answers = SimpleNamespace(get_optimize_ddp_mode=lambda: "no_optimization")
        vars(torch)["_dynamo"] = SimpleNamespace(utils=answers)
    try:
        return Replicated(model, **options)  # type: ignore[arg-type]  # flags
    finally:
        if not imported:
            del vars(torch)["_dynamo"]
