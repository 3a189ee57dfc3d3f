"""Checkpointers for tests that keep a state in memory, or give it back, and write nothing."""

import copy
from dataclasses import dataclass
from typing import Any

from gatehouse.training.state import TrainState


@dataclass
class Keeper:
    """Keeps the state after one step of a run that begins at the beginning.

    Attributes:
        taken: Takes the state.
        step: After which.
    """

    taken: list[dict[str, Any]]
    step: int = 1
    due = False
    last = ""

    def load(self, state: TrainState) -> None:
        """Begin at the beginning."""

    def maybe_save(self, state: TrainState, step: int, *, due: bool, epoch_ended: bool, best: bool) -> None:
        """Keep a copy, at the one step."""
        if step == self.step and not self.taken:
            self.taken.append(copy.deepcopy(state.state_dict()))

    def finish(self) -> None:
        """Nothing is being written."""

    def let_go(self) -> None:
        """Nothing is being written."""


class Giver(Keeper):
    """Begins a run at the state that was kept."""

    def load(self, state: TrainState) -> None:
        """Go on from there."""
        state.load_state_dict(self.taken[0])
