"""AdamW and its state by parameter name, the learning-rate schedule, and the clipping of the gradient."""

import inspect
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from gatehouse.training.parallel.mesh import Layout, cut_like, local, parts_of
from gatehouse.training.spec import OptimizerSpec

_SLOTS = ("step", "exp_avg", "exp_avg_sq")


class LocalAdamW(torch.optim.AdamW):
    """AdamW on this process's own parts of spread tensors.

    It is element-wise, so its bits equal those of a step on the spread tensors. DTensor would look up how to do each
    operation: with two tensor-parallel processes that is a quarter of a small model's step.
    """

    # Torch's decorators on these import its compiler, which takes two seconds, only to disable it.
    add_param_group = inspect.unwrap(torch.optim.AdamW.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.AdamW.zero_grad)
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))

    def _init_group(
        self, group: dict[str, Any], parameters: list[Tensor], gradients: list[Tensor], *slots: list[Tensor]
    ) -> bool:
        has_complex: bool = super()._init_group(group, parameters, gradients, *slots)  # type: ignore[no-untyped-call]  # torch has none
        gradients[:] = map(cut_like, gradients, parameters)
        for tensors in (parameters, gradients, *slots):
            tensors[:] = map(local, tensors)
        return has_complex


def build_optimizer(model: nn.Module, spec: OptimizerSpec) -> torch.optim.AdamW:
    """AdamW over all parameters, its state in place from the start, so that a checkpoint always has the same shape."""
    # On a GPU one kernel takes the whole step, and counts it there.
    fused = all(parameter.is_cuda for parameter in model.parameters()) or None
    optimizer = LocalAdamW(model.parameters(), lr=spec.learning_rate, weight_decay=spec.weight_decay, fused=fused)
    for parameter in model.parameters():
        step = torch.zeros((), device=parameter.device)
        moments = (torch.zeros_like(parameter, memory_format=torch.preserve_format) for _ in range(2))
        optimizer.state[parameter] = dict(zip(_SLOTS, (step, *moments), strict=True))
    return optimizer


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's own tensors, not copies, as `<parameter>.<slot>`; moments have the shape of their parameter."""
    return {
        f"{name}.{slot}": optimizer.state[parameter][slot]
        for name, parameter in model.named_parameters()
        for slot in _SLOTS
    }


def learning_rate(step: int, steps: int, spec: OptimizerSpec) -> float:
    """The rate at a step: a pure function, so that no checkpoint has to hold it.

    Linear warm-up to the peak, then down to a hundredth of it (`cosine`, `linear`), or constant at the peak.
    `steps` is the number of steps of a whole run without early stopping; `step` counts from 0.
    """
    warmup = max(1, round(spec.warmup * steps))
    if step < warmup:
        return spec.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}
    return spec.learning_rate * (0.01 + 0.99 * left[spec.schedule])


def gradient_norm(parameters: Sequence[nn.Parameter], layout: Layout) -> Tensor:
    """2-norm of the gradient of all of the model's parameters, of shape (): the same number on every process.

    A parameter that several processes hold counts once; one that is cut into parts counts with all of them.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if layout.mesh is None:
        return nn.utils.get_total_norm(gradients)
    by_copies: dict[int, list[Tensor]] = {}
    for gradient in gradients:
        # How many processes hold the same values.
        copies = layout.data_size * layout.tensor_size // parts_of(gradient)
        by_copies.setdefault(copies, []).append(local(gradient))
    squares = torch.zeros((), device=gradients[0].device)
    for copies, tensors in by_copies.items():
        squares += nn.utils.get_total_norm(tensors) ** 2 / copies
    dist.all_reduce(squares)
    return squares.sqrt()


def scale_gradients(parameters: Sequence[nn.Parameter], norm: Tensor, most: float, scale: float) -> None:
    """Divide the gradients, whose norm is `norm`, by `scale`, and then bring it down to at most `most`, in place."""
    factor = torch.clamp(most / (norm / scale + 1e-6), max=1.0) / scale
    torch._foreach_mul_([local(parameter.grad) for parameter in parameters if parameter.grad is not None], factor)
