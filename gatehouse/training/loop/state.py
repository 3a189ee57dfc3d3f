"""Everything that decides how a run goes on, in one object: what a checkpoint holds."""

from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gatehouse.training.compute.precision import LossScaler
from gatehouse.training.data.sampler import Position
from gatehouse.training.loop.rng import random_state, set_random_state
from gatehouse.training.optimizer.adamw import optimizer_state
from gatehouse.training.parallel.spread import is_spread, local


@dataclass
class Progress:
    """The plain numbers of a run.

    Attributes:
        step: Optimizer steps taken, over all epochs.
        history: One row an ended epoch: `epoch`, the train loss, and the validation metrics.
        loss: Weighted sum of this process's train loss so far in this epoch.
        weight: What the sum of all processes' losses is divided by.
    """

    step: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    loss: float = 0.0
    weight: float = 0.0


@dataclass
class TrainState:
    """Model, optimizer, scaler, generators, position and progress of one process.

    The schedule is a pure function of the step, and the order of rows one of the position, so neither has a state.

    Attributes:
        part: The module with this process's weights; the names are unique over all stages of a pipeline.
        optimizer: With its state in place from the start (`build_optimizer`).
        scaler: Of the loss.
        position: The next step of the sampler; the same on every process, and of any number of processes.
        progress: Counters and history; `loss` is this process's own.
        best: Copy of the weights of the best epoch so far.
        device: Of this process.
    """

    part: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: LossScaler
    position: Position
    progress: Progress
    best: dict[str, Tensor]
    device: torch.device

    def keep_best(self) -> None:
        """Take the weights of now as the best ones."""
        for name, tensor in self.part.state_dict().items():
            local(self.best[name]).copy_(local(tensor))

    def state_dict(self) -> dict[str, Any]:
        """The state, tensors by reference.

        Returns:
            `model`, `optimizer`, `best`: tensors by name (plain, or DTensor where a process has a part of one), of the
            same names and shapes from the first step to the last; `rank`: this process's own tensors and numbers;
            `progress`: JSON that is the same on every process.
        """
        common = {name: value for name, value in asdict(self.progress).items() if name != "loss"}
        return {
            "model": dict(self.part.state_dict()),
            "optimizer": optimizer_state(self.part, self.optimizer),
            "best": dict(self.best),
            "rank": {"generators": random_state(self.device), "loss": self.progress.loss},
            "progress": common | {"position": self.position.state_dict(), "scaler": self.scaler.state_dict()},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken; tensors are copied in place.

        Without `rank`, as after a change of the number of processes, the train loss counts from here on, and whoever
        calls this seeds the generators.
        """
        mine = {"model": dict(self.part.state_dict()), "best": self.best}
        mine["optimizer"] = optimizer_state(self.part, self.optimizer)
        with torch.no_grad():
            for kind, tensors in mine.items():
                for name, tensor in tensors.items():
                    _copy(tensor, state[kind][name])
        progress = dict(state["progress"])
        self.position.load_state_dict(progress.pop("position"))
        self.scaler.load_state_dict(progress.pop("scaler"))
        for name, value in progress.items():
            setattr(self.progress, name, value)
        if "rank" not in state:
            self.progress.loss = self.progress.weight = 0.0
        else:
            self.progress.loss = state["rank"]["loss"]
            set_random_state(state["rank"]["generators"], self.device)


def _copy(target: Tensor, source: Tensor) -> None:
    if source is target:
        return
    if is_spread(target) and not is_spread(source):
        local(target).copy_(source)
    else:
        target.copy_(source)


def copy_of(part: nn.Module) -> dict[str, Tensor]:
    """Copies of the present weights and buffers by name, each of its own shape, on its own device."""
    return {name: tensor.detach().clone() for name, tensor in part.state_dict().items()}
