"""Validation: each process scores its share of the rows, and all of them get the same metrics."""

import math
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.training.data.rows import Rows
from gatehouse.training.loop.metrics import metrics_of
from gatehouse.training.loss.losses import Loss
from gatehouse.training.parallel.execution import Execution
from gatehouse.training.parallel.mesh import Layout

_CHUNK = 16_384


def validate(
    execution: Execution,
    rows: Rows,
    layout: Layout,
    loss: Loss,
    names: Sequence[str],
    outputs: int,
    device: torch.device,
    alive: Callable[[], None],
) -> dict[str, float]:
    """The metrics of a part, whose rows the processes score together, telling `alive`; see `metrics_of`."""
    return metrics_of(_scores(execution, rows, layout, outputs, device, alive).cpu().double(), rows, loss, names)


def _scores(
    execution: Execution,
    rows: Rows,
    layout: Layout,
    outputs: int,
    device: torch.device,
    alive: Callable[[], None],
) -> Tensor:
    share = math.ceil(len(rows) / layout.data_size)
    shape = (share * layout.data_size,) if outputs == 1 else (share * layout.data_size, outputs)
    scores = torch.zeros(shape, device=device)
    first = layout.data_rank * share
    for start in range(first, first + share, _CHUNK):
        # Past the end, the last row stands in: every process calls the model as often as the others.
        stop = min(start + _CHUNK, first + share)
        taken = slice(start, stop) if stop <= len(rows) else torch.arange(start, stop).clamp(max=len(rows) - 1)
        logits = execution.score(rows.numbers[taken].to(device), rows.ids[taken].to(device))
        if logits is not None and layout.leads_data:
            scores[start:stop] = logits
        alive()
    dist.all_reduce(scores)
    return scores[: len(rows)]
