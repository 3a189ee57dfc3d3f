"""Preemption: the wrapper writes a flag. The ranks agree on it between two steps, save, leave an outcome, and end.

A SIGTERM does not mean that a rank is preempted, because torchrun also sends it to the other ranks when one rank has
died. So a rank has no handler for SIGTERM: it ends at once and without a collective. It looks for the flag instead.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gatehouse.store.atomic_file import write_json

FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Variables in the environment of the ranks: the path of the flag, and the path of the outcome."""


class _File:
    """What one process writes for another."""

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What the file holds; None if it is not written."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Write the file."""
        write_json(path, vars(self))


@dataclass(frozen=True)
class Flag(_File):
    """The content of the flag file.

    Attributes:
        deadline: When the ranks must have ended, by the monotonic clock of the machine, in seconds.
    """

    deadline: float


@dataclass(frozen=True)
class Preempted(_File):
    """The outcome that preempted ranks write.

    Attributes:
        step: Optimizer steps that the run had taken.
        saved: Whether the checkpoint of this step is complete.
    """

    step: int
    saved: bool
