"""Everything that decides how a run continues, in one object: what a checkpoint holds."""

import random
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from gatehouse.training.compute import LossScaler
from gatehouse.training.data.batches import Position
from gatehouse.training.optimizer import optimizer_state
from gatehouse.training.parallel.mesh import is_spread, local


@dataclass
class Progress:
    """The plain numbers of a run."""

    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    loss: float = 0.0
    weight: float = 0.0


@dataclass
class TrainState:
    """Model, optimizer, scaler, generators, position and progress of one process.

    The schedule is a pure function of the step, and the order of rows of the position, so neither has a state. `part`
    is the module with this process's weights, and `best` a copy of the weights of the best epoch so far.
    """

    part: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: LossScaler
    position: Position
    progress: Progress
    best: dict[str, Tensor]
    device: torch.device

    def keep_best(self) -> None:
        """Copy the current weights as the best ones."""
        for name, tensor in self.part.state_dict().items():
            local(self.best[name]).copy_(local(tensor))

    def state_dict(self) -> dict[str, Any]:
        """The state, tensors by reference, of the same names and shapes from the first step to the last.

        `model`, `optimizer` and `best` are tensors by name (DTensor where a process has a part of one). `rank` belongs
        to this process alone; `progress` is JSON that is the same on every process.
        """
        common = {name: value for name, value in asdict(self.progress).items() if name != "loss"}
        return {
            "model": dict(self.part.state_dict()),
            "optimizer": optimizer_state(self.part, self.optimizer),
            "best": dict(self.best),
            "rank": {"generators": random_state(self.device), "loss": self.progress.loss},
            "progress": common | {"position": asdict(self.position), "scaler": self.scaler.state_dict()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken; tensors are copied in place."""
        own = {"model": dict(self.part.state_dict()), "best": self.best}
        own["optimizer"] = optimizer_state(self.part, self.optimizer)
        with torch.no_grad():
            for kind, tensors in own.items():
                for name, target in tensors.items():
                    source = state[kind][name]
                    if source is not target:
                        (local(target) if is_spread(target) and not is_spread(source) else target).copy_(source)
        progress = dict(state["progress"])
        position = progress.pop("position")
        self.position.epoch, self.position.step = position["epoch"], position["step"]
        self.scaler.load_state_dict(progress.pop("scaler"))
        for name, value in progress.items():
            setattr(self.progress, name, value)
        self.progress.loss = state["rank"]["loss"]
        set_random_state(state["rank"]["generators"], self.device)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of the generators of Python, NumPy, torch and this rank's GPU: plain values and flat tensors.

    Other GPUs belong to other ranks. The number of GPUs, and the GPU of this rank, may change between attempts.
    """
    legacy = np.random.get_state(legacy=False)
    assert isinstance(legacy, dict)
    return {
        "python": random.getstate(),
        "numpy": {
            "key": torch.from_numpy(np.asarray(legacy["state"]["key"]).astype(np.int64)),
            "pos": int(legacy["state"]["pos"]),
            "has_gauss": int(legacy["has_gauss"]),
            "gauss": float(legacy["gauss"]),
        },
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def set_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Continue where `random_state` was taken, on the same GPU or another one."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(words), gauss))
    numpy = state["numpy"]
    np.random.set_state(
        {
            "bit_generator": "MT19937",
            "state": {"key": numpy["key"].numpy().astype(np.uint32), "pos": numpy["pos"]},
            "has_gauss": numpy["has_gauss"],
            "gauss": numpy["gauss"],
        }
    )
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"], device)


def seed_all(seed: int) -> None:
    """Seed all generators, so that a builder or a layer of your own that draws from them is repeatable too."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
