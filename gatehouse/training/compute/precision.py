"""Arithmetic in fewer bits: weights stay fp32, and fp16's small gradients are kept from vanishing by a scale."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gatehouse.training.compute.spec import ComputeSpec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(spec: ComputeSpec) -> AbstractContextManager[Any]:
    """Run what gains from it in the precision of `spec`, and what would lose (sums, norms, losses) in fp32."""
    if spec.precision == "fp32":
        return nullcontext()
    return torch.autocast(spec.device, dtype=DTYPES[spec.precision])


class LossScaler:
    """The factor on the loss: halved where a gradient is too large for fp16, doubled after enough that are not.

    All processes see the same global norm, so they agree on the factor without talking.
    """

    GROWTH_STEPS = 2000
    SMALLEST = 2.0**-14

    def __init__(self, spec: ComputeSpec) -> None:
        self._active = spec.precision == "fp16"
        self.scale = 2.0**16 if self._active else 1.0
        self._good = 0

    def shrink(self) -> bool:
        """Halve after a gradient that is not finite; False where a smaller factor would not help."""
        if not self._active or self.scale <= self.SMALLEST:
            return False
        self.scale, self._good = self.scale / 2, 0
        return True

    def grow(self) -> None:
        """Tell of a finite gradient."""
        self._good += 1
        if self._active and self._good >= self.GROWTH_STEPS:
            self.scale, self._good = self.scale * 2, 0

    def state_dict(self) -> dict[str, float]:
        """As plain numbers."""
        return {"scale": self.scale, "good": self._good}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue where `state_dict` was taken."""
        self.scale, self._good = state["scale"], int(state["good"])
