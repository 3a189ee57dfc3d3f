"""Tensors that are spread over processes (DTensor), told from plain ones without importing the package of them.

That import takes as long as torch's own, and a run whose processes all hold the whole model needs none of it.
"""

from typing import Any

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """The part of a spread tensor, of any shape, that this process holds; a tensor that is not spread as it is."""
    part: Tensor = _spread(tensor).to_local() if is_spread(tensor) else tensor
    return part


def whole(tensor: Tensor) -> Tensor:
    """A spread tensor in its whole shape, gathered from its processes; call it on each of them."""
    gathered: Tensor = _spread(tensor).full_tensor() if is_spread(tensor) else tensor
    return gathered


def cut_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A tensor, cut as another of its shape is: the gradient of an embedding cut by rows comes whole."""
    if not is_spread(tensor) or _spread(tensor).placements == _spread(other).placements:
        return tensor
    cut: Tensor = _spread(tensor).redistribute(_spread(other).device_mesh, _spread(other).placements)
    return cut


def parts_of(tensor: Tensor) -> int:
    """Into how many parts a tensor of any shape is divided; 1 if every process holds all of it."""
    if not is_spread(tensor):
        return 1
    parts = 1
    for axis, placement in enumerate(_spread(tensor).placements):
        parts *= 1 if placement.is_replicate() else _spread(tensor).device_mesh.size(axis)
    return parts


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor of any shape is a DTensor."""
    return hasattr(tensor, "device_mesh")


def _spread(tensor: Tensor) -> Any:
    return tensor
