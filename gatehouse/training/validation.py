"""Validation metrics of an epoch, which epoch is the best, and early stopping. A round of trees counts as an epoch."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.metrics.catalogue import is_minimized, metric_named
from gatehouse.metrics.tasks import task_of_loss
from gatehouse.tracking.metrics_file import MetricsFile
from gatehouse.training.batches import Rows
from gatehouse.training.loss import Loss
from gatehouse.training.network_scoring import predictions
from gatehouse.training.parallel.mesh import Layout
from gatehouse.training.parallel.parallelize import Execution
from gatehouse.training.spec import TrainSpec, own_metric

_CHUNK = 16_384


def validation_scores(
    execution: Execution, rows: Rows, layout: Layout, outputs: int, device: torch.device, beat: Callable[[], None]
) -> Tensor:
    """Logits of every row, float64, shape (rows,) or (rows, classes): each process scores its share. Collective.

    Numbers and ids of `rows` are those of all rows, or of this process's shard alone.
    """
    share = math.ceil(len(rows) / layout.data_size)
    first, held = layout.data_rank * share, len(rows.numbers)
    begin = first if held == len(rows) else 0  # Where the share begins in the arrays.
    scores = torch.zeros((share,) if outputs == 1 else (share, outputs), device=device)
    for start in range(0, share, _CHUNK):
        # Past the end, the last row stands in: every process calls the model equally often.
        stop = min(start + _CHUNK, share)
        a, b = begin + start, begin + stop
        chunk = slice(a, b) if b <= held else torch.arange(a, b).clamp(max=held - 1)
        logits = execution.score(rows.numbers[chunk].to(device), rows.ids[chunk].to(device))
        if logits is not None and layout.leads_data:
            scores[start:stop] = logits
        beat()
    return gathered(scores, first, len(rows)).cpu().double()


def gathered(own: Tensor, first: int, rows: int) -> Tensor:
    """The values of all rows, of which this process has those from the number `first` on, or zeros. Collective."""
    values = own.new_zeros((rows, *own.shape[1:]))
    values[first : first + len(own)] = own[: max(0, rows - first)]
    dist.all_reduce(values)
    return values


def metrics_of(scores: Tensor, rows: Rows, loss: Loss, names: Sequence[str]) -> dict[str, float]:
    """The mean loss, with the rows' weights, and the other metrics of `names`, over all rows of a part.

    `scores` are float64 logits, shape (rows,) or (rows, classes).
    """
    total, weight = sums_of(scores, rows, loss)
    metrics = {loss.name: total / weight if weight else 0.0}
    if not math.isfinite(metrics[loss.name]):
        return metrics
    labels = rows.labels.double().numpy()
    groups = None if rows.groups is None else rows.groups.numpy()
    task = task_of_loss(loss.kind)
    read = task.read(predictions(task.output, scores).numpy(), groups)
    return {name: metric_named(name).measure(labels, read) for name in names if name != loss.name} | metrics


def sums_of(scores: Tensor, rows: Rows, loss: Loss) -> tuple[float, float]:
    """The weighted sum of the loss over rows, of logits shaped as in `metrics_of`, and the weight that divides it."""
    labels = rows.labels.double()
    weights = torch.ones((), dtype=torch.float64).expand(len(rows)) if rows.weights is None else rows.weights.double()
    groups = labels[:0] if rows.groups is None else rows.groups
    chunks = [slice(0, len(rows))]
    if rows.groups is not None:  # Chunks that never cut a group.
        ends = torch.unique_consecutive(rows.groups, return_counts=True)[1].cumsum(0).tolist()
        chunks, start = [], 0
        for end, following in zip(ends, [*ends[1:], math.inf], strict=True):
            if following - start > _CHUNK:
                chunks.append(slice(start, end))
                start = end
    total, weight = 0.0, 0.0
    for chunk in chunks:
        targets = labels[chunk], weights[chunk], groups[chunk]
        total += float(loss.total(scores[chunk], *targets))
        weight += float(loss.weight(*targets))
    return total, weight


def log_epochs(metrics: MetricsFile | None, history: Sequence[Mapping[str, float]]) -> None:
    """Log rows of a history, each under the number of its epoch; nothing on ranks that log nothing.

    A resumed run logs the rows of its checkpoint again, for readers that began only now.
    """
    if metrics is None:
        return
    for row in history:
        metrics.log({name: value for name, value in row.items() if name != "epoch"}, int(row["epoch"]))
    metrics.flush()


def best_epoch(history: list[dict[str, Any]], spec: TrainSpec) -> int:
    """Index of the best epoch: a later epoch must gain more than `stopping.least_gain`. For a refit, the last epoch."""
    if spec.stopping.refit:
        return len(history) - 1
    name = own_metric(spec)
    sign = 1.0 if is_minimized(name) else -1.0
    best = 0
    for index, row in enumerate(history):
        if sign * row[name] < sign * history[best][name] - spec.stopping.least_gain:
            best = index
    return best


def is_over(history: list[dict[str, Any]], spec: TrainSpec) -> bool:
    """Whether the last `stopping.patience` epochs brought nothing better, or a refit has had its epochs."""
    if spec.stopping.refit:
        return len(history) >= spec.stopping.refit
    return bool(history) and len(history) - 1 - best_epoch(history, spec) >= spec.stopping.patience
