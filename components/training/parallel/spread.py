"""Tensors that are spread over processes (DTensor), told from plain ones without importing the package of them.

That import takes as long as torch's own, and a run whose processes all hold the whole model needs none of it.
"""

from typing import Any

from torch import Tensor


def local(tensor: Tensor) -> Tensor:
    """This process's part of a spread tensor, or the tensor itself."""
    part: Tensor = _spread(tensor).to_local() if is_spread(tensor) else tensor
    return part


def whole(tensor: Tensor) -> Tensor:
    """All of a spread tensor, gathered from its processes; call it on each of them."""
    gathered: Tensor = _spread(tensor).full_tensor() if is_spread(tensor) else tensor
    return gathered


def mesh_of(tensor: Tensor) -> object:
    """The mesh that a tensor is spread over; None for a plain one."""
    return _spread(tensor).device_mesh if is_spread(tensor) else None


def parts_of(tensor: Tensor) -> int:
    """Into how many parts a tensor is cut; 1 where every process holds all of it."""
    if not is_spread(tensor):
        return 1
    parts = 1
    for axis, placement in enumerate(_spread(tensor).placements):
        parts *= 1 if placement.is_replicate() else _spread(tensor).device_mesh.size(axis)
    return parts


def is_spread(tensor: Tensor) -> bool:
    """Whether a tensor is a DTensor."""
    return hasattr(tensor, "device_mesh")


def _spread(tensor: Tensor) -> Any:
    return tensor
