"""AdamW, and its state by parameter name."""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from gatehouse.training.optimizer.spec import OptimizerSpec
from gatehouse.training.parallel.spread import cut_like, local

_SLOTS = ("step", "exp_avg", "exp_avg_sq")


class LocalAdamW(torch.optim.AdamW):
    """AdamW on this process's own parts of spread tensors.

    It is element-wise, so its bits are those of a step on the spread tensors, each of whose operations asks DTensor how
    it is done: two processes that share every product spend a quarter of a small model's step on these questions.
    """

    # As torch has them, these import its compiler, which takes two seconds, only to tell it to leave them alone.
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
