"""Arithmetic in fewer bits: weights stay fp32, and fp16's small gradients are kept from vanishing by a scale."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gatehouse.components.training.spec import TrainSpec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(spec: TrainSpec) -> AbstractContextManager[Any]:
    """Run what gains from it in the spec's precision, and what would lose (sums, norms, losses) in fp32."""
    if spec.precision == "fp32":
        return nullcontext()
    return torch.autocast(spec.device, dtype=DTYPES[spec.precision])


class LossScaler:
    """The factor on the loss: halved after a gradient that is not finite, doubled after enough that are.

    All processes see the same global norm, so they agree on the factor without talking.
    """

    GROWTH_STEPS = 2000
    SMALLEST = 2.0**-14

    def __init__(self, spec: TrainSpec) -> None:
        self.active = spec.precision == "fp16"
        self.scale = 2.0**16 if self.active else 1.0
        self._good = 0

    def update(self, finite: bool) -> None:
        """Tell whether the step's gradient was finite."""
        if not self.active:
            return
        self._good = self._good + 1 if finite else 0
        if not finite:
            self.scale /= 2
        elif self._good >= self.GROWTH_STEPS:
            self.scale *= 2
            self._good = 0

    @property
    def exhausted(self) -> bool:
        """Whether halving has not helped: the gradient is broken, not too large for fp16."""
        return not self.active or self.scale < self.SMALLEST

    def state_dict(self) -> dict[str, float]:
        """As plain numbers."""
        return {"scale": self.scale, "good": self._good}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue where `state_dict` was taken."""
        self.scale, self._good = state["scale"], int(state["good"])
