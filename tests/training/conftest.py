"""A process group of one, and checkpointers that write nothing, for trainings inside the test's own process."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from gatehouse.training.trainer import TrainState


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """This process is the only rank."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path / 'rendezvous'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


@dataclass
class Keeper:
    """A checkpointer that keeps in `taken` the state after one step of a run that begins at the beginning."""

    taken: list[dict[str, Any]]
    step: int = 1
    due = False
    last = ""

    def load(self, state: TrainState) -> None: ...

    def maybe_save(self, state: TrainState, step: int, *, due: bool, epoch_ended: bool, best: bool) -> None:
        if step == self.step and not self.taken:
            self.taken.append(copy.deepcopy(state.state_dict()))

    def finish(self) -> None: ...

    def let_go(self) -> None: ...


class Giver(Keeper):
    """Begins a run at the state that was kept."""

    def load(self, state: TrainState) -> None:
        state.load_state_dict(self.taken[0])
