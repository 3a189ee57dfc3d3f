"""Where a number that is not finite began: in the rows, the loss, or the gradient of a parameter."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gatehouse.training.data.batches import Batch
from gatehouse.training.parallel.mesh import local

ROWS = "the rows'"
"""How an origin in the data begins."""


class DivergedError(ArithmeticError):
    """The loss or the gradient is no longer finite."""


def origin(part: nn.Module, batch: Batch, loss: Tensor) -> str:
    """The first that is not finite on any process: rows of the batch, its loss, or a gradient. Collective."""
    candidates: list[tuple[int, str]] = []
    for name in ("numbers", "labels", "weights"):
        tensor = getattr(batch, name)
        if not tensor.isfinite().all():
            place = (~tensor.isfinite()).nonzero()[0].tolist()
            candidates.append((0, f"{ROWS} {name}" + (f", column {place[1]}" if len(place) > 1 else "")))
    if not loss.isfinite():
        candidates.append((1, "the loss"))
    # The backward pass starts at the last parameter.
    for name, parameter in reversed(list(part.named_parameters())):
        if parameter.grad is not None and not torch.isfinite(local(parameter.grad)).all():
            candidates.append((2, f"the gradient of {name}"))
            break
    gathered: list[list[tuple[int, str]]] = [[]] * dist.get_world_size()
    dist.all_gather_object(gathered, candidates)
    everywhere = [candidate for own in gathered for candidate in own]
    return min(everywhere)[1] if everywhere else "a sum over finite tensors"
