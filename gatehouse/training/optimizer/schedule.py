"""The course of the learning rate: a pure function of the step, so that no checkpoint has to hold it."""

import math

import torch

from gatehouse.training.optimizer.spec import OptimizerSpec


def learning_rate(step: int, steps: int, spec: OptimizerSpec) -> float:
    """Linear warm-up to the peak, then down to a hundredth of it (`cosine`, `linear`), or on at the peak (`constant`).

    Args:
        step: From 0.
        steps: Of the whole run, as if it were never stopped early.
        spec: Holds schedule, peak and share of warm-up.
    """
    warmup = max(1, round(spec.warmup * steps))
    if step < warmup:
        return spec.learning_rate * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    left = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}
    return spec.learning_rate * (0.01 + 0.99 * left[spec.schedule])


def set_rates(optimizer: torch.optim.Optimizer, rate: float, weight_decay: float) -> None:
    """Use this learning rate, and this weight decay, from the next step on."""
    for group in optimizer.param_groups:
        group["lr"], group["weight_decay"] = rate, weight_decay
