"""How one process runs forward and backward: at once, or as a stage of a pipeline (`pipeline.py`)."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gatehouse.training.compute.precision import autocast
from gatehouse.training.data.batches import Batch
from gatehouse.training.loss.losses import Loss
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.spec import NetworkTraining


class Execution(Protocol):
    """Runs this process's part of the model.

    Attributes:
        part: The module that holds its weights, under the names that they have in the whole model.
    """

    part: nn.Module

    def backward(self, batch: Batch, factor: float) -> Tensor:
        """Add the gradient of `factor` (over 0) times the batch's loss, micro-batch by micro-batch; returns the loss.

        The loss is the weighted sum over the batch's rows, of shape () and in fp32, and zero where this process has no
        logits. Where it is not finite, the gradient is not finite either.
        """

    def score(self, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """Logits in fp32, shape (rows,) or (rows, classes); None where this process has none.

        Args:
            numbers: Numeric inputs, shape (rows, numeric columns).
            ids: Categorical inputs, shape (rows, categorical columns).
        """


class Direct:
    """Every process computes its rows from end to end."""

    def __init__(
        self, model: nn.Module, part: nn.Module, spec: NetworkTraining, layout: Layout, loss: Loss, device: torch.device
    ) -> None:
        self.part = part
        self._model, self._spec, self._loss, self._device = model, spec, loss, device

    def backward(self, batch: Batch, factor: float) -> Tensor:
        """See `Execution.backward`: gradients are exchanged with the last micro-batch only."""
        if not self.part.training:  # It asks every module.
            self.part.train()
        micro = batch.split(self._spec.data.accumulation)
        total = torch.zeros((), device=self._device)
        for index, rows in enumerate(micro):
            with self._exchanging(index == len(micro) - 1):
                with autocast(self._spec.compute):
                    logits = self._model(rows.numbers, rows.ids)
                loss = self._loss.total(logits.float(), rows.labels, rows.weights, rows.groups)
                torch.autograd.backward(scaled(loss, factor))
            total += loss.detach()
        return total

    def _exchanging(self, wanted: bool) -> AbstractContextManager[Any]:
        if isinstance(self._model, DistributedDataParallel):
            return nullcontext() if wanted else self._model.no_sync()
        # FSDP2 adds this to the module's own class.
        exchange: Callable[[bool], None] | None = getattr(self._model, "set_requires_gradient_sync", None)
        if exchange:
            exchange(wanted)
        return nullcontext()

    def score(self, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """See `Execution.score`."""
        self.part.eval()
        with torch.no_grad(), autocast(self._spec.compute):
            logits: Tensor = self._model(numbers, ids)
        return logits.float()


def scaled(loss: Tensor, factor: float) -> Tensor:
    """`factor` times the loss, shape (). Where the loss is not finite, neither is the gradient of the product."""
    return loss * (factor + 0.0 * loss.detach())
