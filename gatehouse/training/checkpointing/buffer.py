"""The copy of the training state that is written while training goes on: memory shared with the writer, and reused.

A first copy into fresh memory costs ten times a later one, as every page is mapped then; so all pages are touched when
the buffer is made. Its head holds the numbers by which this process and the writer tell each other how far they are.
"""

import mmap
import os

import torch
from torch import Tensor

from gatehouse.training.checkpointing.plan import Plan
from gatehouse.training.checkpointing.status import HEAD, Status


class StagingBuffer:
    """Shared memory of the size of what this rank writes."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.descriptor = os.memfd_create("checkpoint")
        os.ftruncate(self.descriptor, HEAD + plan.bytes)
        self._memory = mmap.mmap(self.descriptor, HEAD + plan.bytes)
        self.status = Status(self._memory)
        whole = torch.frombuffer(self._memory, dtype=torch.uint8)
        whole[HEAD:].zero_()
        # A training on CPUs does not start CUDA, also where there are GPUs.
        self._pinned = torch.cuda.is_initialized() and _pin(whole)  # type: ignore[no-untyped-call]  # torch has none
        self._whole = whole
        self._targets = [_view(whole, HEAD + chunk.at, chunk.bytes, chunk.dtype, chunk.sizes) for chunk in plan.chunks]

    @property
    def tensors(self) -> memoryview:
        """The bytes of the file."""
        return memoryview(self._memory)[HEAD:]

    @torch.no_grad()
    def copy(self, pieces: list[Tensor]) -> None:
        """Copy the pieces of the plan, in its order and of its shapes; they may change as soon as this returns."""
        for target, piece in zip(self._targets, pieces, strict=True):
            target.copy_(piece, non_blocking=self._pinned)
        if self._pinned:
            torch.cuda.synchronize()

    def close(self) -> None:
        """Give the memory back; a writer that is at work keeps it until it has ended."""
        if self._pinned:
            torch.cuda.cudart().cudaHostUnregister(self._whole.data_ptr())  # type: ignore[no-untyped-call]  # torch has none
        os.close(self.descriptor)  # The memory itself goes with the last tensor that looks at it.


def _view(whole: Tensor, at: int, length: int, dtype: str, sizes: tuple[int, ...]) -> Tensor:
    return whole[at : at + length].view(getattr(torch, dtype)).view(sizes)


def _pin(whole: Tensor) -> bool:
    """Let the GPU write to the buffer directly; without this its copies go through another one."""
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]  # torch has none
    return int(runtime.cudaHostRegister(whole.data_ptr(), whole.numel(), 0)) == 0
