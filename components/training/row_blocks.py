"""Runs a model in blocks of one fixed shape, so that what it says of a row depends on that row and nothing else.

The kernels of a matrix product sum in an order that depends on the shape of the matrices, and those of a sigmoid
compute the last few values of an array in another way than the rest: the same row, scored alone and among thousands,
differs in its last bits. Batch and online scores are equal only if both are computed in the same shapes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_ROWS = 64
_TILE = 16


def fixed_shapes(model: nn.Module) -> nn.Module:
    """The model with the outputs of its linear layers padded to whole tiles, for `score_rows`.

    In a narrower layer the order of sums depends on where in the block a row is.
    """
    for name, child in model.named_children():
        if isinstance(child, nn.Linear) and child.out_features % _TILE:
            setattr(model, name, _WholeTiles(child))
        else:
            fixed_shapes(child)
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


class _WholeTiles(nn.Module):
    """A linear layer, computed with outputs of zero beside its own."""

    _weight: Tensor
    _bias: Tensor | None

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self._outputs = layer.out_features
        more = -layer.out_features % _TILE
        self.register_buffer("_weight", nn.functional.pad(layer.weight.detach(), (0, 0, 0, more)))
        self.register_buffer("_bias", None if layer.bias is None else nn.functional.pad(layer.bias.detach(), (0, more)))

    def forward(self, values: Tensor) -> Tensor:
        """As the layer's."""
        return nn.functional.linear(values, self._weight, self._bias)[..., : self._outputs]


@contextmanager
def _one_thread() -> Iterator[None]:
    """The number of threads changes the order of sums, too: fix it at one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
