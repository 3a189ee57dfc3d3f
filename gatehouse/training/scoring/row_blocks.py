"""Runs a model in blocks of one fixed shape, so that what it says of a row depends on that row and nothing else.

The kernels of a matrix product sum in an order that depends on the shape of the matrices, and those of a sigmoid
compute the last few values of an array in another way than the rest: the same row, scored alone and among thousands,
differs in its last bits. Batch and online scores are equal only if both are computed in the same shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

import torch
from torch import Tensor, nn

_ROWS = 64
_TILE = 16


def fixed_shapes(model: nn.Module) -> nn.Module:
    """The model with the outputs of its linear layers padded to whole tiles while they are computed, for `score_rows`.

    In a narrower layer the order of sums depends on where in the block a row is.
    """
    for layer in model.modules():
        if isinstance(layer, nn.Linear) and layer.out_features % _TILE:
            layer.forward = _whole_tiles(layer)  # type: ignore[method-assign, assignment]  # its weights stay where models read them
    return model


@torch.no_grad()
def score_rows(score: Callable[[Tensor, Tensor], Tensor], numbers: Tensor, ids: Tensor) -> Tensor:
    """What `score` gives for rows of numbers and category ids, one for each row, in order.

    Args:
        score: Everything from these to the scores; what is computed outside of it is not computed in fixed shapes.
        numbers: Of shape (rows, width).
        ids: Of shape (rows, categorical columns).
    """
    rows = len(numbers)
    padding = (0, 0, 0, max(-rows % _ROWS, 0 if rows else _ROWS))
    blocks = zip(*(torch.split(nn.functional.pad(each, padding), _ROWS) for each in (numbers, ids)), strict=True)
    with _one_thread():
        return torch.cat([score(*block) for block in blocks])[:rows]


def _whole_tiles(layer: nn.Linear) -> Callable[[Tensor], Tensor]:
    """What a linear layer computes, with outputs of zero computed beside its own."""
    more = -layer.out_features % _TILE
    weight = nn.functional.pad(layer.weight.detach(), (0, 0, 0, more))
    bias = None if layer.bias is None else nn.functional.pad(layer.bias.detach(), (0, more))
    return lambda values: nn.functional.linear(values, weight, bias)[..., : layer.out_features]


class _OneThread:
    """The number of threads changes the order of sums, too: fix it at one.

    Torch keeps the number for each thread, and the last one set for threads that ask for the first time. What a thread
    finds while another one scores is therefore not what it had before.
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
