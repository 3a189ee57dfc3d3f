"""Parallelism, applied to a model from outside: one file a kind, and the order in which they are put together."""

import torch
from torch import nn

from gatehouse.training.loss.losses import Loss
from gatehouse.training.parallel.activation import checkpoint_activations, compile_blocks
from gatehouse.training.parallel.ddp import replicate
from gatehouse.training.parallel.execution import Direct, Execution
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.spec import NetworkTraining


def parallelize(
    model: nn.Module, spec: NetworkTraining, layout: Layout, loss: Loss, device: torch.device, rows: int
) -> Execution:
    """Spread a model over the processes of a layout: cut it into stages, divide its products, then share its rows.

    Args:
        model: Whole, with the same weights on every process.
        spec: Says which parallelism.
        layout: Where this process stands.
        loss: What the last stage of a pipeline computes.
        device: Of this process.
        rows: Of one process's micro-batch; what a pipeline's buffers are made for.
    """
    # What a layout does not need is not imported: it takes seconds.
    if layout.mesh is None:
        part = _prepared(model.to(device), spec)
        whole = replicate(part, spec) if layout.data_size > 1 else part
        return Direct(whole, part, spec, layout, loss, device)
    from gatehouse.training.parallel.fsdp import shard
    from gatehouse.training.parallel.pipeline import Pipelined, stage_of
    from gatehouse.training.parallel.tensor import divide, plan_of

    part = stage_of(model, layout) if layout.pipeline_size > 1 else model
    if layout.tensor_size > 1:
        divide(part.to(device), plan_of(model), layout)
    _prepared(part.to(device), spec)
    if layout.data_size > 1:
        shard(part, layout)
    if layout.pipeline_size > 1:
        return Pipelined(part, spec, layout, loss, device, rows)
    return Direct(part, part, spec, layout, loss, device)


def _prepared(part: nn.Module, spec: NetworkTraining) -> nn.Module:
    if spec.compute.activation_checkpointing:
        checkpoint_activations(part)
    if spec.compute.compile:
        compile_blocks(part)
    return part
