"""Where a number that is not finite began: in the rows, a module's output, the loss, or a parameter's gradient."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gatehouse.training.data.batches import Batch
from gatehouse.training.parallel.mesh import Layout, local
from gatehouse.training.parallel.parallelize import Execution

ROWS = "the rows'"
"""How an origin in the data begins."""


class DivergedError(ArithmeticError):
    """The loss or the gradient is no longer finite."""


def origin(execution: Execution, batch: Batch, loss: Tensor, layout: Layout) -> str:
    """The first tensor that is not finite, on any process; collective, before the optimizer's step.

    The forward and backward pass of the batch, whose loss has shape (), are computed again to find it: the gradient in
    `execution` is overwritten, and dropout draws anew.
    """
    # Candidates sort by stage of the computation, then by place in the pipeline.
    candidates: list[tuple[int, int, str]] = []
    # The backward pass starts at the last parameter.
    for name, parameter in reversed(list(execution.part.named_parameters())):
        if parameter.grad is not None and not _finite(parameter.grad):
            candidates.append((3, -layout.pipeline_rank, f"the gradient of {name}"))
            break
    outputs: list[str] = []

    def watch(name: str) -> Callable[[nn.Module, object, object], None]:
        def hook(module: nn.Module, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and not _finite(output):
                outputs.append(name)

        return hook

    # All processes call the model together, also one that has a candidate already.
    leaves = [(name, module) for name, module in execution.part.named_modules() if not list(module.children())]
    handles = [module.register_forward_hook(watch(name)) for name, module in leaves]
    try:
        repeated = execution.backward(batch, 1.0)
    finally:
        for handle in handles:
            handle.remove()
    if outputs:
        candidates.append((1, layout.pipeline_rank, f"the output of {outputs[0]}"))
    if not loss.isfinite():
        name = "a number that was finite when it was computed again" if repeated.isfinite() else "the loss"
        candidates.append((2, 0, name))
    for name in ("numbers", "labels", "weights"):
        tensor = getattr(batch, name)
        if not tensor.isfinite().all():
            place = (~tensor.isfinite()).nonzero()[0].tolist()
            candidates.append((0, 0, f"{ROWS} {name}" + (f", column {place[1]}" if len(place) > 1 else "")))
            break
    gathered: list[list[tuple[int, int, str]]] = [[]] * dist.get_world_size()
    dist.all_gather_object(gathered, candidates)
    everywhere = [candidate for part in gathered for candidate in part]
    return min(everywhere)[2] if everywhere else "a sum over finite tensors"


def _finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(local(tensor)).all())
