"""Validation metrics: each process scores its share of the rows, and all of them get the same numbers."""

import math
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

from gatehouse.components.training.data.batches import Rows
from gatehouse.components.training.loss.losses import Loss
from gatehouse.components.training.parallel.execution import Execution
from gatehouse.components.training.parallel.mesh import Layout
from gatehouse.components.training.spec import TrainSpec

_CHUNK = 16_384


def validate(
    execution: Execution,
    rows: Rows,
    spec: TrainSpec,
    layout: Layout,
    loss: Loss,
    outputs: int,
    device: torch.device,
    alive: Callable[[], None],
) -> dict[str, float]:
    """The metrics of a part, whose rows the processes score together, telling `alive`; see `metrics_of`."""
    return metrics_of(_scores(execution, rows, layout, outputs, device, alive).cpu().double(), rows, spec, loss)


def metrics_of(scores: Tensor, rows: Rows, spec: TrainSpec, loss: Loss) -> dict[str, float]:
    """The loss's mean under its name, and the other metrics of its task, over all rows of the part.

    Args:
        scores: Logits of every row, float64.
        rows: The part.
        spec: Names the task.
        loss: Of the spec.
    """
    total, weight = sums_of(scores, rows, loss)
    metrics = {loss.name: total / weight if weight else 0.0}
    if not math.isfinite(metrics[loss.name]):
        return metrics
    groups = rows.labels[:0] if rows.groups is None else rows.groups
    # The loss stays what it is, with the rows' weights, where another metric has its name.
    return _others(spec.loss, rows.labels.double(), scores, groups) | metrics


def sums_of(scores: Tensor, rows: Rows, loss: Loss) -> tuple[float, float]:
    """The weighted sum of the loss over rows, and what it is divided by."""
    labels = rows.labels.double()
    one = torch.ones((), dtype=torch.float64)
    weights = one.expand(len(rows)) if rows.weights is None else rows.weights.double()
    groups = labels[:0] if rows.groups is None else rows.groups
    total, weight = 0.0, 0.0
    for part in _parts(rows):
        given = labels[part], weights[part], groups[part]
        total += float(loss.total(scores[part], *given))
        weight += float(loss.weight(*given))
    return total, weight


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


def _parts(rows: Rows) -> Iterator[slice]:
    """Slices that never cut a group; one slice where there are no groups."""
    if rows.groups is None:
        yield slice(0, len(rows))
        return
    ends = torch.unique_consecutive(rows.groups, return_counts=True)[1].cumsum(0).tolist()
    start = 0
    for end, following in zip(ends, [*ends[1:], math.inf], strict=True):
        if following - start > _CHUNK:
            yield slice(start, end)
            start = end


def _others(task: str, labels: Tensor, scores: Tensor, groups: Tensor) -> dict[str, float]:
    if task == "binary":
        from gatehouse.components.metrics.binary import roc_auc

        return {"roc_auc": roc_auc(labels.numpy(), scores.numpy())}
    if task == "multiclass":
        return {"accuracy": float((scores.argmax(1) == labels.long()).double().mean())}
    if task == "pairwise":
        return {"ndcg": ndcg(labels, scores, groups)}
    errors = scores - labels
    spread = float(((labels - labels.mean()) ** 2).sum())
    return {
        "mae": float(errors.abs().mean()),
        "mse": float((errors**2).mean()),
        "r2": 1 - float((errors**2).sum()) / spread if spread else 0.0,
    }


def ndcg(labels: Tensor, scores: Tensor, groups: Tensor) -> float:
    """Mean normalised discounted cumulative gain of the groups that have a label above 0 (Jarvelin, Kekalainen 2002).

    Gains are the labels themselves; rows of equal score stand in the order given.
    """
    gained, ideal = (_gain(labels, by, groups) for by in (scores, labels))
    known = ideal > 0
    return float((gained[known] / ideal[known]).mean()) if known.any() else 0.0


def _gain(labels: Tensor, by: Tensor, groups: Tensor) -> Tensor:
    order = torch.argsort(by, descending=True, stable=True)
    order = order[torch.argsort(groups[order], stable=True)]
    _, number, counts = torch.unique_consecutive(groups[order], return_inverse=True, return_counts=True)
    place = torch.arange(len(order)) - (counts.cumsum(0) - counts)[number]
    gains = labels[order] / torch.log2(place.double() + 2)
    return torch.zeros(len(counts), dtype=torch.float64).index_add_(0, number, gains)
