"""Training losses: each a weighted sum over rows, and what to divide the sum of all processes by.

Logits have shape (rows,), or (rows, classes) for several classes; labels, weights and groups have shape (rows,). A row
of weight zero counts nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    huber_loss,
    logsigmoid,
    mse_loss,
)

from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.training.loss.spec import HuberLoss, LossSpec


@dataclass(frozen=True)
class Loss:
    """One loss.

    Attributes:
        kind: As its settings name it.
        name: Of the validation metric that is this loss's mean.
        total: Weighted sum over the rows of (logits, labels, weights, groups).
        weight: What that sum is divided by, from (labels, weights, groups).
        by_rows: Whether `weight` is the sum of weights, so that rows of weight one need no counting.
    """

    kind: str
    name: str
    total: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    weight: Callable[[Tensor, Tensor, Tensor], Tensor]
    by_rows: bool = True


def loss_of(spec: LossSpec) -> Loss:
    """The loss that its settings name."""
    kind, name = spec.kind, task_of_loss(spec.kind).losses[spec.kind]
    if isinstance(spec, HuberLoss):
        delta = spec.delta
        return Loss(kind, name, lambda *given: _huber(*given, delta=delta), _sum_of_weights)
    if spec.kind == "pairwise":
        return Loss(kind, name, _pairwise, _pairs, by_rows=False)
    total = {"binary": _binary, "multiclass": _multiclass, "mse": _squared}[spec.kind]
    return Loss(kind, name, total, _sum_of_weights)


def _sum_of_weights(labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    return weights.sum()


def _binary(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    return binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")


def _multiclass(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    return (cross_entropy(logits, labels.long(), reduction="none") * weights).sum()


def _squared(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    return (mse_loss(logits, labels, reduction="none") * weights).sum()


def _huber(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor, *, delta: float) -> Tensor:
    return (huber_loss(logits, labels, reduction="none", delta=delta) * weights).sum()


def _pairwise(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """RankNet (Burges et al. 2005): -log sigmoid of the difference over pairs of a group with labels that differ.

    Rows are put in order of groups, large ones first. Pairs that lie `distance` rows apart are then two slices of the
    rows of groups with more rows than that: no other pair is made, and gradients need no scattered sums.
    """
    _, group, counts = torch.unique(groups, return_inverse=True, return_counts=True)
    sizes = counts[group]
    order = torch.argsort(group, stable=True)
    order = order[torch.argsort(sizes[order], descending=True, stable=True)]
    scores, labels, weights, group = logits[order], labels[order], weights[order], group[order]
    total = logits.sum() * 0.0
    rows_of_larger = (len(order) - torch.bincount(sizes).cumsum(0)).tolist()
    for distance, rows in enumerate(rows_of_larger[1:-1], start=1):
        one, other = slice(0, rows - distance), slice(distance, rows)
        higher = torch.sign(labels[one] - labels[other]) * (group[one] == group[other])
        weight = weights[one] * weights[other] * higher.abs()
        total = total - (logsigmoid((scores[one] - scores[other]) * higher) * weight).sum()
    return total


def _pairs(labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """Weight of all pairs, counted without making them.

    The square of a group's sum, less the squares of its equal labels' sums, has each pair in both orders.
    """
    order = torch.argsort(labels, stable=True)
    order = order[torch.argsort(groups[order], stable=True)]
    group, label = groups[order], labels[order]
    begins = torch.ones(len(order), dtype=torch.bool, device=order.device)
    begins[1:] = (group[1:] != group[:-1]) | (label[1:] != label[:-1])
    alike = begins.cumsum(0) - 1
    together = torch.unique_consecutive(group, return_inverse=True)[1][begins]
    sums = torch.zeros(len(together), dtype=torch.float64, device=order.device)
    sums.index_add_(0, alike, weights[order].double())
    squares = torch.zeros_like(sums).index_add_(0, together, sums).square()
    # Group by group: what has one label gives a zero, not what two sums of squares differ by.
    return squares.index_add_(0, together, -sums.square()).sum() / 2
