"""Where a number that is not finite began: in the rows, a module's output, the loss, or a parameter's gradient."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gatehouse.training.data.batches import Batch
from gatehouse.training.parallel.execution import Execution
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.parallel.spread import local

ROWS = "the rows'"
"""How an origin in the data begins."""
_Finding = tuple[int, int, str]


class DivergedError(ArithmeticError):
    """The loss or the gradient is no longer finite, or the loss grew too much."""


def origin(execution: Execution, batch: Batch, loss: Tensor, layout: Layout, again: Callable[[], None]) -> str:
    """The first tensor that is not finite, on any process; call it on all processes, before the optimizer's step.

    The batch's forward and backward pass are computed again to find it.

    Args:
        execution: With the gradient of the batch, which is overwritten.
        batch: The rows of the gradient, as `Batch` shapes them.
        loss: The loss of the batch, shape ().
        layout: The place of this process among all.
        again: Resets the generators, so that the same random numbers are drawn as for the batch.
    """
    gradients = _in_gradients(execution.part, layout)
    # All processes call the model together, so each does whatever it has found before.
    again()
    outputs, repeated = _in_outputs(execution, batch, layout)
    name = "a number that was finite when it was computed again" if repeated.isfinite() else "the loss"
    in_loss = None if loss.isfinite() else (2, 0, name)
    mine = _in_rows(batch) or outputs or in_loss or gradients
    found: list[_Finding | None] = [None] * dist.get_world_size()
    dist.all_gather_object(found, mine)
    known = [finding for finding in found if finding]
    return min(known)[2] if known else "a sum over finite tensors"


def _in_rows(batch: Batch) -> _Finding | None:
    for name in ("numbers", "labels", "weights"):
        tensor = getattr(batch, name)
        if not tensor.isfinite().all():
            wrong = (~tensor.isfinite()).nonzero()[0].tolist()
            return 0, 0, f"{ROWS} {name}" + (f", column {wrong[1]}" if len(wrong) > 1 else "")
    return None


def _in_outputs(execution: Execution, batch: Batch, layout: Layout) -> tuple[_Finding | None, Tensor]:
    names: list[str] = []
    handles = [
        module.register_forward_hook(_Watch(name, names))
        for name, module in execution.part.named_modules()
        if not list(module.children())
    ]
    try:
        loss = execution.backward(batch, 1.0)
    finally:
        for handle in handles:
            handle.remove()
    return (1, layout.pipeline_rank, f"the output of {names[0]}") if names else None, loss


class _Watch:
    def __init__(self, name: str, names: list[str]) -> None:
        self._name, self._names = name, names

    def __call__(self, module: nn.Module, inputs: object, output: object) -> None:
        if isinstance(output, Tensor) and not _finite(output):
            self._names.append(self._name)


def _in_gradients(part: nn.Module, layout: Layout) -> _Finding | None:
    # The backward pass starts at the last parameter.
    for name, parameter in reversed(list(part.named_parameters())):
        if parameter.grad is not None and not _finite(parameter.grad):
            return 3, -layout.pipeline_rank, f"the gradient of {name}"
    return None


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(local(tensor)).all())
