"""Nested training state as flat leaves, and how a rank reads its leaves from a checkpoint. Nothing is pickled.

Leaves are tensors, of which a spread one (DTensor) is a piece on each rank, and other values, which are JSON.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from gatehouse.errors import ConfigurationError
from gatehouse.training.checkpointing.record import CheckpointStore, Saved
from gatehouse.training.parallel.mesh import local, offsets_of

PRIVATE = "rank/"  # Leaves below the entry `rank` belong to one rank alone, such as its random number generators.
_VALUES = "values"


def flatten(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, not copied, and the other values of nested dictionaries, by path such as `model/head.weight`.

    A list is one value.
    """
    tensors: dict[str, Tensor] = {}
    values: dict[str, Any] = {}
    for key, child in state.items():
        if "/" in key:
            raise ConfigurationError(f"The training state has the name {key!r}: expected one without a slash.")
        path = f"{prefix}{key}"
        if isinstance(child, Mapping) and child:
            below = flatten(child, f"{path}/")
            tensors, values = tensors | below[0], values | below[1]
        elif isinstance(child, Tensor):
            tensors[path] = child
        else:
            values[path] = child
    return tensors, values


def unflatten(leaves: Mapping[str, Any]) -> dict[str, Any]:
    """Rebuild the nested state from the leaves of `flatten`."""
    root: dict[str, Any] = {}
    for path, leaf in leaves.items():
        *parents, last = path.split("/")
        node = root
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = leaf
    return root


def write_leaves(path: Path, tensors: dict[str, Tensor], values: Mapping[str, Any]) -> None:
    """Write a rank's file; the tensors are on the CPU, contiguous, and share no memory."""
    save_file(tensors, path, metadata={_VALUES: json.dumps(values)})


def read_state(store: CheckpointStore, saved: Saved, state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """The state of one rank as a checkpoint has it, nested as in `state`, which names the tensors that are read.

    Tensors of `state` that have the shape of the saved ones are filled in place, and others come as new ones. Raises
    TornCheckpointError if the checkpoint lacks a tensor.
    """
    tensors, _ = flatten(state)
    paths_by_owner: dict[int, list[str]] = {rank: []}
    for path, tensor in tensors.items():
        offsets = offsets_of(tensor)
        for owner in (rank, *range(len(saved.files))):
            if saved.files[owner].pieces.get(path) == offsets:
                paths_by_owner.setdefault(owner, []).append(path)
                break
        else:
            raise store.torn(saved.name, f"it has no tensor {path} with the offsets {offsets}")
    leaves: dict[str, Any] = {}
    for owner, paths in paths_by_owner.items():
        with safe_open(store.file(saved, owner), "pt") as file:
            if owner == rank:
                leaves |= json.loads(file.metadata()[_VALUES])
            for path in paths:
                piece, target = file.get_tensor(path), tensors[path].detach()
                own = local(target)
                if (own.shape, own.dtype) == (piece.shape, piece.dtype):
                    own.copy_(piece)
                    piece = target
                leaves[path] = piece
    return unflatten(leaves)
