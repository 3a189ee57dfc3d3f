"""Scores rows with a neural network, in blocks of one shape."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gatehouse.metrics.tasks.found import task_of_loss
from gatehouse.metrics.tasks.task import Output
from gatehouse.training.models.building import build_model
from gatehouse.training.scoring.row_blocks import fixed_shapes, score_rows


def scorer(architecture: dict[str, Any], weights: dict[str, Tensor]) -> Callable[[Any, Any], npt.NDArray[np.float64]]:
    """A function from numbers (rows, width) and ids (rows, columns) to predictions.

    Args:
        architecture: As `build_model` takes it, with the kind of `loss`.
        weights: Tensors by name.
    """
    model = build_model(architecture)
    model.load_state_dict(weights)
    fixed, output = fixed_shapes(model.eval()), task_of_loss(architecture["loss"]).output

    def predicted(numbers: Tensor, ids: Tensor) -> Tensor:
        return predictions(output, fixed(numbers, ids).double())

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(score_rows(predicted, torch.from_numpy(numbers), torch.from_numpy(ids)).numpy())

    return score


def predictions(output: Output, logits: Tensor) -> Tensor:
    """What is predicted from logits, of the same shape: probabilities for classes, else the logits themselves."""
    if output == "probability":
        return torch.sigmoid(logits)
    if output == "probabilities":
        return torch.softmax(logits, dim=-1)
    return logits
