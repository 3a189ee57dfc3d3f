"""The norm of the whole gradient, wherever its parts are, and its clipping."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.parallel.spread import local, parts_of


def gradient_norm(parameters: Sequence[nn.Parameter], layout: Layout) -> Tensor:
    """2-norm of the gradient of all of the model's parameters, of shape (): the same number on every process.

    A parameter that several processes hold counts once, one that is cut into parts counts with all of them.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if layout.mesh is None:
        return nn.utils.get_total_norm(gradients)
    by_copies: dict[int, list[Tensor]] = {}
    for gradient in gradients:
        # How many processes hold the same values.
        copies = layout.data_size * layout.tensor_size // parts_of(gradient)
        by_copies.setdefault(copies, []).append(local(gradient))
    device = gradients[0].device
    squares = torch.zeros((), device=device)
    for copies, tensors in by_copies.items():
        squares += nn.utils.get_total_norm(tensors) ** 2 / copies
    dist.all_reduce(squares)
    return squares.sqrt()


def scale_gradients(parameters: Sequence[nn.Parameter], norm: Tensor, most: float, scale: float) -> None:
    """Divide the gradients by `scale`, and bring one whose norm is then over `most` down to it, in place.

    Args:
        parameters: The parameters of this process, with their gradients.
        norm: Of the gradient as it is now, shape ().
        most: The largest norm.
        scale: What the gradient was multiplied by.
    """
    factor = torch.clamp(most / (norm / scale + 1e-6), max=1.0) / scale
    torch._foreach_mul_([local(parameter.grad) for parameter in parameters if parameter.grad is not None], factor)
