"""Losses and validation metrics against their definitions, written out; and that what weighs nothing counts nothing."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from gatehouse.training.loss import loss_of
from tests.training.specs import network

TASKS: dict[str, dict[str, Any]] = {
    "binary": {},
    "multiclass": {},
    "mse": {},
    "huber": {"delta": 0.7},
    "pairwise": {"group": "day"},
}


def _batch(task: str, rows: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    shape = (rows, 3) if task == "multiclass" else (rows,)
    labels = torch.randint(0, {"binary": 2}.get(task, 3), (rows,), generator=draw).double()
    groups = torch.randint(0, 3, (rows,), generator=draw)
    weights = torch.rand(rows, generator=draw).double()
    return torch.randn(shape, generator=draw).double(), labels, weights, groups


def _row_loss(task: str, logit: Any, label: float) -> float:
    if task == "binary":
        return float(np.log1p(math.exp(-logit if label == 1 else logit)))
    if task == "multiclass":
        return float(-logit[int(label)] + np.log(np.exp(logit).sum()))
    error = abs(logit - label)
    if task == "mse":
        return float(error**2)
    return float(0.5 * error**2 if error <= 0.7 else 0.7 * (error - 0.35))


@given(task=st.sampled_from(sorted(TASKS)), rows=st.integers(1, 12), seed=st.integers(0, 1000))
def test_a_loss_is_the_weighted_sum_of_its_definition(task: str, rows: int, seed: int) -> None:
    logits, labels, weights, groups = _batch(task, rows, seed)
    loss = loss_of(network(loss=task, **TASKS[task]).loss)
    if task == "pairwise":
        pairs = [(i, j) for i, j in permutations(range(rows), 2) if groups[i] == groups[j] and labels[i] > labels[j]]
        weigh = [float(weights[i] * weights[j]) for i, j in pairs]
        terms = [math.log1p(math.exp(-float(logits[i] - logits[j]))) for i, j in pairs]
    else:
        weigh = weights.tolist()
        terms = [_row_loss(task, logit, label) for logit, label in zip(logits.numpy(), labels.tolist(), strict=True)]
    expected = sum(weight * term for weight, term in zip(weigh, terms, strict=True))
    assert float(loss.total(logits, labels, weights, groups)) == pytest.approx(expected, abs=1e-9)
    assert float(loss.weight(labels, weights, groups)) == pytest.approx(sum(weigh), abs=1e-9)


@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_row_of_weight_zero_changes_neither_loss_nor_gradient(task: str) -> None:
    logits, labels, weights, groups = _batch(task, 8, 5)
    weights[5:] = 0.0
    loss = loss_of(network(loss=task, **TASKS[task]).loss)
    logits.requires_grad_()
    total = loss.total(logits, labels, weights, groups)
    (gradient,) = torch.autograd.grad(total, logits)
    assert not gradient[5:].any()
    kept = slice(0, 5)
    assert float(total.detach()) == pytest.approx(
        float(loss.total(logits.detach()[kept], labels[kept], weights[kept], groups[kept]))
    )
