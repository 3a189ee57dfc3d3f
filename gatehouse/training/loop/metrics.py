"""The validation metrics of a loss, from the logits of all rows of a part."""

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from gatehouse.metrics.catalogue import metric_named
from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.tracking.spool import SpoolWriter
from gatehouse.training.data.rows import Rows
from gatehouse.training.loss.losses import Loss
from gatehouse.training.scoring.networks import predictions

_CHUNK = 16_384


def metrics_of(scores: Tensor, rows: Rows, loss: Loss, names: Sequence[str]) -> dict[str, float]:
    """The loss's mean under its name, and the other metrics that are wanted, over all rows of the part.

    Args:
        scores: Logits of every row, float64, shape (rows,) or (rows, classes).
        rows: The part.
        loss: What was trained on.
        names: Of the metrics.
    """
    total, weight = sums_of(scores, rows, loss)
    metrics = {loss.name: total / weight if weight else 0.0}
    if not math.isfinite(metrics[loss.name]):
        return metrics
    labels = rows.labels.double().numpy()
    groups = None if rows.groups is None else rows.groups.numpy()
    task = task_of_loss(loss.kind)
    read = task.read(predictions(task.output, scores).numpy(), groups)
    # The loss stays what it is, with the rows' weights, where a metric has its name.
    return {name: metric_named(name).measure(labels, read) for name in names if name != loss.name} | metrics


def log_epochs(metrics: SpoolWriter | None, history: Sequence[Mapping[str, float]]) -> None:
    """Spool rows of a history, one an epoch or round, each under its number; nothing on ranks that spool nothing.

    A run that goes on from a checkpoint spools the rows that it finds there again, for those who began to read now.
    """
    if metrics is None:
        return
    for row in history:
        metrics.log({name: value for name, value in row.items() if name != "epoch"}, int(row["epoch"]))


def sums_of(scores: Tensor, rows: Rows, loss: Loss) -> tuple[float, float]:
    """The weighted sum of the loss over rows, of logits shaped as in `metrics_of`, and what it is divided by."""
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
