"""The arithmetic of a process: threads, determinism, device and precision."""

import os
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from gatehouse.errors import ConfigurationError
from gatehouse.training.spec import ComputeSpec

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class DivergedError(ArithmeticError):
    """The loss or the gradient is no longer finite."""


def prepare_process(spec: ComputeSpec, threads: int) -> None:
    """Set what decides bits in this process: threads, determinism, and the device of this rank."""
    torch.set_num_threads(threads)
    if spec.deterministic:
        # cuBLAS adds in a fixed order only with workspaces of its own, which it reads from here when it starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # `use_deterministic_algorithms` does the same and imports torch's compiler, which takes two seconds.
    torch.set_deterministic_debug_mode("error" if spec.deterministic else "default")
    if spec.device == "cuda":
        rank, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        if rank >= gpus:
            raise ConfigurationError(
                f"training.compute.device is cuda: expected a GPU for each process of this machine, found {gpus} for "
                f"process {rank + 1}. Set it to cpu, start fewer processes, or ask for more in launch.resources."
            )
        torch.cuda.set_device(rank)
        torch.backends.cudnn.benchmark = not spec.deterministic


def autocast(spec: ComputeSpec) -> AbstractContextManager[Any]:
    """Run in the precision of `spec` what gains from it; sums, norms and losses stay in fp32."""
    if spec.precision == "fp32":
        return nullcontext()
    return torch.autocast(spec.device, dtype=DTYPES[spec.precision])


class LossScaler:
    """The factor on the loss that keeps fp16's small gradients from vanishing.

    It is halved where a gradient is too large for fp16, and doubled after enough that are not. All processes see the
    same global norm, so they agree on the factor without communication.
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
        """Count a finite gradient."""
        self._good += 1
        if self._active and self._good >= self.GROWTH_STEPS:
            self.scale, self._good = self.scale * 2, 0

    def state_dict(self) -> dict[str, float]:
        """As plain numbers."""
        return {"scale": self.scale, "good": self._good}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue where `state_dict` was taken."""
        self.scale, self._good = state["scale"], int(state["good"])
