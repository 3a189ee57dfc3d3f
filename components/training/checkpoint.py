"""Checkpoints of an unfinished training run: complete or not there, and never unpickled."""

import json
import os
from pathlib import Path
from typing import Any

import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor

from gatehouse.components.training.parallel import Layout
from gatehouse.components.training.parallel.spread import local
from gatehouse.components.training.state import TrainState

_MARK = "checkpoint.json"
_KINDS = ("model", "optimizer", "best")


class Checkpointer:
    """Saves the state at the end of every epoch, where every process can find it.

    Where every process holds all weights, rank 0 writes for all; else each writes its own part.
    """

    def __init__(self, directory: Path, layout: Layout) -> None:
        self._whole = layout.mesh is None
        self._directory = directory if self._whole else directory / f"rank-{dist.get_rank()}"
        self._directory.mkdir(exist_ok=True)

    def load(self, state: TrainState) -> None:
        """Put the last complete checkpoint into `state`, if there is one."""
        found = load(self._directory)
        if found is None:
            return
        tensors: dict[str, dict[str, Tensor]] = {kind: {} for kind in _KINDS}
        for name, tensor in found[0].items():
            kind, _, rest = name.partition("/")
            tensors[kind][rest] = tensor
        state.load_state_dict({**tensors, "progress": found[1]["progress"]})

    def maybe_save(self, state: TrainState, step: int, *, epoch_ended: int | None) -> None:
        """Called after every step, when all of `state` belongs together.

        Args:
            state: What to save.
            step: Optimizer steps taken.
            epoch_ended: Number of the epoch that this step ended, if it did.
        """
        if epoch_ended is None:
            return
        if dist.get_rank() == 0 or not self._whole:
            held = state.state_dict()
            tensors = {f"{kind}/{name}": local(tensor) for kind in _KINDS for name, tensor in held[kind].items()}
            save(self._directory, epoch_ended, tensors, {"progress": held["progress"]})
        dist.barrier()


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
