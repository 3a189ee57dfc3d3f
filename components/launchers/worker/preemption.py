"""Preemption: the wrapper writes a flag. The ranks agree on it between two steps, save, leave an outcome, and end.

A SIGTERM does not mean that a rank is preempted, because torchrun also sends it to the other ranks when one rank has
died. So a rank has no handler for SIGTERM: it ends at once and without a collective. It looks for the flag instead.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gatehouse.components.artifacts.atomic_file import write_json

FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Variables in the environment of the ranks: the path of the flag, and the path of the outcome."""


@dataclass(frozen=True)
class Flag:
    """The content of the flag file.

    Attributes:
        deadline: When the ranks must have ended, by the monotonic clock of the machine, in seconds.
    """

    deadline: float

    @classmethod
    def read(cls, path: Path) -> "Flag | None":
        """The flag; None if it is not written."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Write the flag."""
        write_json(path, asdict(self))


@dataclass(frozen=True)
class Preempted:
    """The outcome that preempted ranks write.

    Attributes:
        step: Optimizer steps that the run had taken.
        saved: Whether the checkpoint of this step is complete.
    """

    step: int
    saved: bool

    @classmethod
    def read(cls, path: Path) -> "Preempted | None":
        """The outcome that the ranks of this machine wrote; None if they were not preempted."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Write the outcome for the wrapper."""
        write_json(path, asdict(self))
