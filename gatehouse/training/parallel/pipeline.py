"""Pipeline parallelism: a model cut between its blocks into stages, through which micro-batches stream."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from gatehouse.training.batches import Batch
from gatehouse.training.compute import autocast
from gatehouse.training.loss import Loss, scaled
from gatehouse.training.parallel.mesh import Layout, NotDivisibleError
from gatehouse.training.spec import NetworkTraining

_SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}


class Stage(nn.Module):
    """A run of a model's blocks; the first stage embeds, the last has the head. Names are as in the whole model."""

    def __init__(self, model: nn.Module, blocks: range, *, first: bool, last: bool) -> None:
        super().__init__()
        whole = model.get_submodule("blocks")
        assert isinstance(whole, nn.ModuleList)
        self.embed = model.get_submodule("embed") if first else None
        self.blocks = nn.ModuleDict({str(index): whole[index] for index in blocks})
        self.head = model.get_submodule("head") if last else None

    def forward(self, *inputs: Tensor) -> Tensor:
        """Run the blocks on numbers and ids, or on the output of the stage before; the last stage returns logits."""
        hidden: Tensor = self.embed(*inputs) if self.embed is not None else inputs[0]
        for block in self.blocks.values():
            hidden = block(hidden)
        return self.head(hidden) if self.head is not None else hidden


def stage_of(model: nn.Module, layout: Layout) -> Stage:
    """This process's stage: blocks are divided evenly; earlier stages take the remainder."""
    children = dict(model.named_children())
    if children.keys() != {"embed", "blocks", "head"}:
        raise NotDivisibleError(
            f"{type(model).__name__} cannot be cut into a pipeline: expected the children embed, blocks and head, "
            f"found {', '.join(children)}. Build it of these three, or set parallelism.pipeline to 1."
        )
    count, size = len(list(children["blocks"].children())), layout.pipeline_size
    if count < size:
        raise NotDivisibleError(f"{type(model).__name__} has {count} blocks: too few for {size} stages.")
    share, over = divmod(count, size)
    rank = layout.pipeline_rank
    start = rank * share + min(rank, over)
    blocks = range(start, start + share + (rank < over))
    return Stage(model, blocks, first=rank == 0, last=layout.last_stage)


class Pipelined:
    """One stage of the pipeline; `accumulation` is the number of micro-batches in flight."""

    def __init__(
        self, part: nn.Module, spec: NetworkTraining, layout: Layout, loss: Loss, device: torch.device, rows: int
    ) -> None:
        assert layout.mesh is not None
        self.part = part
        self._spec, self._layout, self._device, self._rows, self._factor = spec, layout, device, rows, 1.0
        stage = PipelineStage(
            part, layout.pipeline_rank, layout.pipeline_size, device, group=layout.mesh["pipeline"].get_group()
        )
        schedule = _SCHEDULES[spec.parallelism.pipeline_schedule]

        def scaled_loss(logits: Tensor, target: Tensor) -> Tensor:
            labels, weights = target.unbind(1)
            return scaled(loss.total(logits.float(), labels, weights, labels[:0]), self._factor)

        self._schedule = schedule(stage, spec.data.accumulation, loss_fn=scaled_loss, scale_grads=False)

    def backward(self, batch: Batch, factor: float) -> Tensor:
        """See `Execution.backward`."""
        if not self.part.training:  # `train` visits every module.
            self.part.train()
        self._factor = factor
        losses: list[Tensor] = []
        with autocast(self._spec.compute):
            target = torch.stack([batch.labels, batch.weights], dim=1)
            targets: dict[str, Any] = {"target": target, "losses": losses} if self._layout.last_stage else {}
            self._schedule.step(*self._inputs(batch.numbers, batch.ids), **targets)
        if not losses:
            return torch.zeros((), device=self._device)
        return torch.stack([loss.detach() for loss in losses]).sum() / factor

    def score(self, numbers: Tensor, ids: Tensor) -> Tensor | None:
        """See `Execution.score`: as many rows at a time as a training step has, as the buffers are made for them."""
        self.part.eval()
        size = self._rows * self._spec.data.accumulation
        parts = []
        for start in range(0, len(numbers), size):
            rows = torch.arange(start, start + size).clamp(max=len(numbers) - 1)
            nothing = torch.zeros(size, 2, device=self._device)
            targets: dict[str, Any] = {"target": nothing, "losses": []} if self._layout.last_stage else {}
            with torch.no_grad(), autocast(self._spec.compute):
                logits = self._schedule.eval(*self._inputs(numbers[rows], ids[rows]), **targets)
            if logits is not None:
                parts.append(logits.float())
        return torch.cat(parts)[: len(numbers)] if parts else None

    def _inputs(self, numbers: Tensor, ids: Tensor) -> tuple[Tensor, ...]:
        return (numbers, ids) if self._layout.pipeline_rank == 0 else ()
