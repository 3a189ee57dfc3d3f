"""Training losses: each a weighted sum over rows, and the weight by which all processes' sum is divided.

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

from gatehouse.metrics.tasks import task_of_loss
from gatehouse.training.spec import HuberLoss, LossSpec


@dataclass(frozen=True)
class Loss:
    """One loss: the weighted sum of (logits, labels, weights, groups), and the weight that divides it.

    `name` is the validation metric that is the mean loss. With `by_rows` the weight is the sum of weights, so that rows
    of weight one need no counting.
    """

    kind: str
    name: str
    total: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
    weight: Callable[[Tensor, Tensor, Tensor], Tensor]
    by_rows: bool = True


def loss_of(spec: LossSpec) -> Loss:
    """The loss of its settings."""
    name = task_of_loss(spec.kind).losses[spec.kind]
    if spec.kind == "pairwise":
        return Loss(spec.kind, name, _pairwise, _pairs, by_rows=False)

    def total(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
        if spec.kind == "binary":
            return binary_cross_entropy_with_logits(logits, labels, weight=weights, reduction="sum")
        if spec.kind == "multiclass":
            rows = cross_entropy(logits, labels.long(), reduction="none")
        elif isinstance(spec, HuberLoss):
            rows = huber_loss(logits, labels, reduction="none", delta=spec.delta)
        else:
            rows = mse_loss(logits, labels, reduction="none")
        return (rows * weights).sum()

    return Loss(spec.kind, name, total, lambda labels, weights, groups: weights.sum())


def _pairwise(logits: Tensor, labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """RankNet (Burges et al. 2005): -log sigmoid of the difference over pairs of a group with labels that differ.

    Rows are put in order of groups, large groups first. Pairs that lie `distance` rows apart are then two slices of the
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
        left, right = slice(0, rows - distance), slice(distance, rows)
        higher = torch.sign(labels[left] - labels[right]) * (group[left] == group[right])
        weight = weights[left] * weights[right] * higher.abs()
        total = total - (logsigmoid((scores[left] - scores[right]) * higher) * weight).sum()
    return total


def _pairs(labels: Tensor, weights: Tensor, groups: Tensor) -> Tensor:
    """Weight of all pairs, counted without making them.

    The square of a group's sum, minus the squares of its equal labels' sums, has each pair in both orders.
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
    # Group by group, so that a group with one label gives exactly zero.
    return squares.index_add_(0, together, -sums.square()).sum() / 2


def scaled(loss: Tensor, factor: float) -> Tensor:
    """`factor` times the loss, shape (). Where the loss is not finite, neither is the gradient of the product."""
    return loss * (factor + 0.0 * loss.detach())
