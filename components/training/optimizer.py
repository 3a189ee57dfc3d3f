"""AdamW, its learning-rate schedule, and its state by parameter name."""

import math

import torch
from torch import Tensor, nn

from gatehouse.components.training.parallel.spread import mesh_of
from gatehouse.components.training.spec import TrainSpec

_SLOTS = ("step", "exp_avg", "exp_avg_sq")


def build_optimizer(model: nn.Module, spec: TrainSpec) -> torch.optim.AdamW:
    """AdamW over all parameters, its state in place from the start, so that a checkpoint always has the same shape."""
    groups: dict[object, list[nn.Parameter]] = {}
    for parameter in model.parameters():
        # One update takes tensors of one kind: plain ones, or those spread over the same mesh.
        groups.setdefault(mesh_of(parameter), []).append(parameter)
    optimizer = torch.optim.AdamW(
        [{"params": parameters} for parameters in groups.values()],
        lr=spec.learning_rate,
        weight_decay=spec.weight_decay,
    )
    for parameters in groups.values():
        for parameter in parameters:
            moments = (torch.zeros_like(parameter, memory_format=torch.preserve_format) for _ in range(2))
            optimizer.state[parameter] = dict(zip(_SLOTS, (torch.tensor(0.0), *moments), strict=True))
    return optimizer


def optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's own tensors, not copies, as `<parameter>.<slot>`."""
    return {
        f"{name}.{slot}": optimizer.state[parameter][slot]
        for name, parameter in model.named_parameters()
        for slot in _SLOTS
    }


def learning_rate(step: int, steps: int, spec: TrainSpec) -> float:
    """Linear warm-up to the peak, then down to a hundredth of it (`cosine`, `linear`), or on at the peak (`constant`).

    Args:
        step: From 0.
        steps: Of the whole run.
        spec: Holds schedule, peak and share of warm-up.
    """
    warmup = max(1, round(spec.warmup * steps))
    if step < warmup:
        return spec.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}
    return spec.learning_rate * (0.01 + 0.99 * left[spec.schedule])


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use `rate` from the next step on."""
    for group in optimizer.param_groups:
        group["lr"] = rate
