"""Preemption: the wrapper raises a flag, the ranks agree on it at a step boundary, save, tell, and end.

SIGTERM alone cannot mean it: torchrun sends it to the survivors of a dead peer as well. So a rank keeps the system's
answer to SIGTERM, which is to end at once and without a collective, and looks for the wrapper's flag instead.
"""

import json
import math
import os
import time
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Name the flag's file and the file for the outcome in the environment of the ranks."""
_TIMEOUT = timedelta(seconds=120)


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
        _replace(path, json.dumps(asdict(self)))


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
        _replace(path, json.dumps(asdict(self)))


@dataclass(frozen=True)
class Agreed:
    """What all ranks know alike after a boundary.

    Attributes:
        preempted: Whether to save and end.
        due: Whether a checkpoint is due.
        seconds: How long the machine that is being taken away still has; without end where none is.
    """

    preempted: bool = False
    due: bool = False
    seconds: float = math.inf


class Boundary:
    """The step boundary, at which the ranks agree on what each of them sees alone.

    The exchange of one boundary runs beside the next step, and its answer is read at the boundary after: a step is as
    long as without it, and all ranks act at the same step.
    """

    def __init__(self) -> None:
        """Collective where a process group is there."""
        flag, outcome = os.environ.get(FLAG), os.environ.get(OUTCOME)
        self._flag = Path(flag) if flag else None
        self._outcome = Path(outcome) if outcome else None
        shared = dist.is_initialized() and dist.get_world_size() > 1
        self._group = dist.new_group(backend="gloo", timeout=_TIMEOUT) if shared else None
        self._answer: torch.Tensor | None = None
        self._pending: dist.Work | None = None
        self._raised: Flag | None = None

    def check(self, *, due: bool = False) -> Agreed:
        """What the ranks agreed on; collective.

        Args:
            due: Whether this rank finds that a checkpoint is due.
        """
        self._raised = self._raised or (Flag.read(self._flag) if self._flag else None)
        left = self._raised.deadline - time.monotonic() if self._raised else math.inf
        mine = torch.tensor([float(self._raised is not None), float(due), -left])
        if self._group is None:
            return self._agreed(mine)
        answer = Agreed()
        if self._pending is not None and self._answer is not None:
            self._pending.wait()
            answer = self._agreed(self._answer)
        self._answer = mine
        self._pending = dist.all_reduce(mine, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return answer

    def tell(self, preempted: Preempted) -> None:
        """Leave the outcome for the wrapper of this machine; one rank of each machine does."""
        if self._outcome is not None:
            preempted.write(self._outcome)

    @staticmethod
    def _agreed(answer: torch.Tensor) -> Agreed:
        preempted, due, left = answer.tolist()
        return Agreed(bool(preempted), bool(due), max(-left, 0.0))


def _replace(path: Path, text: str) -> None:
    half = path.with_name(f".{path.name}-{os.getpid()}")
    half.write_text(text)
    os.replace(half, path)
