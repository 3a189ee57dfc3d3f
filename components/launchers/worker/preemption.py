"""Preemption: the wrapper raises a flag, the ranks agree on it at a step boundary, save, tell, and end.

SIGTERM alone cannot mean it: torchrun sends it to the survivors of a dead peer as well. So a rank keeps the system's
answer to SIGTERM, which is to end at once and without a collective, and looks for the wrapper's flag instead.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from gatehouse.components.artifacts.atomic_file import write_json

FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Name the flag's file and the file for the outcome in the environment of the ranks."""


@dataclass(frozen=True)
class Flag:
    """What the wrapper writes: by when (monotonic clock of the machine) the ranks must have ended."""

    deadline: float

    @classmethod
    def read(cls, path: Path) -> "Flag | None":
        """The flag, or None while it is not raised."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Raise the flag; whole or not at all."""
        write_json(path, asdict(self))


@dataclass(frozen=True)
class Preempted:
    """What the ranks leave behind: the step that the run had reached, and whether its checkpoint is whole."""

    step: int
    saved: bool

    @classmethod
    def read(cls, path: Path) -> "Preempted | None":
        """What the ranks of this machine left, or None where they were not preempted."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Leave it for the wrapper."""
        write_json(path, asdict(self))
