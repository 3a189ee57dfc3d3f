"""Scores rows with a neural network, in blocks of one fixed shape, so that a row's score depends on that row alone.

The kernels of a matrix product sum in an order that depends on the shape of the matrices, and the kernel of a sigmoid
computes the last few values of an array differently from the rest: the same row, scored alone and among thousands,
differs in its last bits. Batch and online scores are equal only if both are computed in the same shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from gatehouse.metrics.tasks import Output, task_of_loss
from gatehouse.training.models import build_model

_ROWS = 64
_TILE = 16


def network_scorer(
    architecture: dict[str, Any], weights: dict[str, Tensor]
) -> Callable[[Any, Any], npt.NDArray[np.float64]]:
    """A function from numbers (rows, width) and ids (rows, columns) to predictions; see `predictor.Score`."""
    model = build_model(architecture)
    model.load_state_dict(weights)
    fixed, output = fixed_shapes(model.eval()), task_of_loss(architecture["loss"]).output

    def predicted(numbers: Tensor, ids: Tensor) -> Tensor:
        return predictions(output, fixed(numbers, ids).double())

    def score(numbers: npt.NDArray[np.float32], ids: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        return np.asarray(score_rows(predicted, torch.from_numpy(numbers), torch.from_numpy(ids)).numpy())

    return score


def predictions(output: Output, logits: Tensor) -> Tensor:
    """Probabilities of classes from logits, of the same shape; of other tasks, the logits themselves."""
    if output == "probability":
        return torch.sigmoid(logits)
    if output == "probabilities":
        return torch.softmax(logits, dim=-1)
    return logits


def fixed_shapes(model: nn.Module) -> nn.Module:
    """The model with the outputs of its linear layers padded to whole tiles while they are computed, for `score_rows`.

    In a narrower layer the order of sums depends on where in the block a row is.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and (more := -layer.out_features % _TILE):
            weight = nn.functional.pad(layer.weight.detach(), (0, 0, 0, more))
            bias = None if layer.bias is None else nn.functional.pad(layer.bias.detach(), (0, more))
            # The layer keeps its own weights, where models read them.
            layer.forward = partial(_padded, weight, bias, layer.out_features)  # type: ignore[method-assign]  # it computes the same
    return model


def _padded(weight: Tensor, bias: Tensor | None, width: int, values: Tensor) -> Tensor:
    return nn.functional.linear(values, weight, bias)[..., :width]


@torch.no_grad()
def score_rows(score: Callable[[Tensor, Tensor], Tensor], numbers: Tensor, ids: Tensor) -> Tensor:
    """The scores of rows of numbers (rows, width) and category ids (rows, columns), in order.

    `score` computes the scores of one block of rows, so all its arrays have a fixed shape.
    """
    rows = len(numbers)
    padding = (0, 0, 0, max(-rows % _ROWS, 0 if rows else _ROWS))
    blocks = zip(*(torch.split(nn.functional.pad(array, padding), _ROWS) for array in (numbers, ids)), strict=True)
    with _one_thread():
        return torch.cat([score(*block) for block in blocks])[:rows]


class _OneThread:
    """Fixes the number of threads at one, as it changes the order of sums too.

    Torch keeps the number per thread, and gives the last one set to threads that ask for the first time: a thread may
    not find its own number while another one scores.
    """

    def __init__(self) -> None:
        self._lock, self._inside, self._usual = Lock(), 0, 1

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._usual = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                torch.set_num_threads(self._usual)


_one_thread = _OneThread()
