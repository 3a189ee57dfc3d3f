"""The validation metrics of a loss, from the logits of all rows of a part."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from gatehouse.components.training.data.rows import Rows
from gatehouse.components.training.loss.losses import Loss

_CHUNK = 16_384


def metrics_of(scores: Tensor, rows: Rows, loss: Loss) -> dict[str, float]:
    """The loss's mean under its name, and the other metrics of its task, over all rows of the part.

    Args:
        scores: Logits of every row, float64.
        rows: The part.
        loss: What was trained on.
    """
    total, weight = sums_of(scores, rows, loss)
    metrics = {loss.name: total / weight if weight else 0.0}
    if not math.isfinite(metrics[loss.name]):
        return metrics
    groups = rows.labels[:0] if rows.groups is None else rows.groups
    # The loss stays what it is, with the rows' weights, where another metric has its name.
    return _others(loss.kind, rows.labels.double(), scores, groups) | metrics


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


def _others(kind: str, labels: Tensor, scores: Tensor, groups: Tensor) -> dict[str, float]:
    if kind == "binary":
        from gatehouse.components.metrics.binary import roc_auc

        return {"roc_auc": roc_auc(labels.numpy(), scores.numpy())}
    if kind == "multiclass":
        return {"accuracy": float((scores.argmax(1) == labels.long()).double().mean())}
    if kind == "pairwise":
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
