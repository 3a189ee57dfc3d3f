"""Checkpoints of an unfinished training run: complete or not there, and never unpickled."""

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

_MARK = "checkpoint.json"


def save(directory: Path, epoch: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
    """Write the checkpoint of `epoch`, then let the mark name it, then drop the one before."""
    target = directory / f"epoch-{epoch}.safetensors"
    temporary = target.with_suffix(".tmp")
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, temporary)
    os.replace(temporary, target)
    write_json(directory / _MARK, state | {"epoch": epoch, "file": target.name})
    for old in directory.glob("epoch-*.safetensors"):
        if old != target:
            old.unlink(missing_ok=True)


def load(directory: Path) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
    """Tensors and state of the last complete checkpoint, or None where there is none."""
    try:
        state = json.loads((directory / _MARK).read_text())
        return load_file(directory / state["file"]), state
    except FileNotFoundError:
        return None


def write_json(path: Path, body: dict[str, Any], unique: str = "") -> None:
    """Write JSON that is there whole or not at all.

    Args:
        path: Where.
        body: What.
        unique: Tells writers apart that may write the same file at the same time.
    """
    temporary = path.with_suffix(f".tmp{unique}")
    temporary.write_text(json.dumps(body, sort_keys=True))
    os.replace(temporary, path)


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimizer's state as named tensors."""
    state = optimizer.state_dict()["state"]
    return {f"optimizer.{index}.{name}": tensor for index, slots in state.items() for name, tensor in slots.items()}


def restore(tensors: dict[str, Tensor], model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Put a checkpoint's tensors back into model and optimizer; returns the best weights so far."""
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "best": {}, "optimizer": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        parts[part][rest] = tensor
    model.load_state_dict(parts["model"])
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        index, _, slot = name.partition(".")
        state.setdefault(int(index), {})[slot] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    return parts["best"]
