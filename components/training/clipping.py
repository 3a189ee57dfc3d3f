"""The norm of the whole gradient, wherever its parts are, and its clipping."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from gatehouse.components.training.parallel.mesh import Layout


def gradient_norm(parameters: Sequence[nn.Parameter], layout: Layout) -> Tensor:
    """2-norm of the gradient of all of the model's parameters: the same number on every process.

    A parameter that several processes hold counts once, one that is cut into parts counts with all of them.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if layout.mesh is None:
        return nn.utils.get_total_norm(gradients)
    by_copies: dict[int, list[Tensor]] = {}
    for gradient in gradients:
        by_copies.setdefault(_copies(gradient, layout), []).append(_local(gradient))
    device = gradients[0].device
    squares = torch.zeros((), device=device)
    for copies, tensors in by_copies.items():
        squares += nn.utils.get_total_norm(tensors) ** 2 / copies
    dist.all_reduce(squares)
    return squares.sqrt()


def _copies(gradient: Tensor, layout: Layout) -> int:
    """How many processes hold the same values."""
    parts = 1
    if isinstance(gradient, DTensor):
        for axis, placement in enumerate(gradient.placements):
            if placement.is_shard():
                parts *= gradient.device_mesh.size(axis)
    return layout.data_size * layout.tensor_size // parts


def scale_gradients(parameters: Sequence[nn.Parameter], norm: Tensor, most: float, scale: float) -> None:
    """Bring a gradient whose norm (after division by `scale`) is over `most` down to it, in place."""
    factor = torch.clamp(most / (norm / scale + 1e-6), max=1.0) / scale
    torch._foreach_mul_([_local(parameter.grad) for parameter in parameters if parameter.grad is not None], factor)


def _local(gradient: Tensor) -> Tensor:
    return gradient.to_local() if isinstance(gradient, DTensor) else gradient
