"""The boundary between two steps: signs of life, and what the ranks must agree on."""

import math
import os
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gatehouse.components.launchers.timeouts import collective_seconds
from gatehouse.components.launchers.worker import fault_injection
from gatehouse.components.launchers.worker.heartbeat import Heartbeat
from gatehouse.components.launchers.worker.preemption import FLAG, OUTCOME, Flag, Preempted


@dataclass(frozen=True)
class Agreement:
    """What all ranks know alike after a boundary.

    Attributes:
        preempted: Whether to save and end.
        due: Whether a checkpoint is due.
        seconds: How long the machine that is being taken away still has; without end where none is.
    """

    preempted: bool = False
    due: bool = False
    seconds: float = math.inf


class StepBarrier:
    """The step boundary, at which the ranks agree on what each of them sees alone.

    The exchange of one boundary runs beside the next step, and its answer is read at the boundary after: a step is as
    long as without it, and all ranks act at the same step.
    """

    def __init__(self, heartbeat: Heartbeat | None = None) -> None:
        """Collective where a process group is there."""
        self._heartbeat = heartbeat
        flag, outcome = os.environ.get(FLAG), os.environ.get(OUTCOME)
        self._fault = os.environ.get(fault_injection.FAULT, "")
        self._flag = Path(flag) if flag else None
        self._outcome = Path(outcome) if outcome else None
        shared = dist.is_initialized() and dist.get_world_size() > 1
        patience = timedelta(seconds=collective_seconds())
        self._group = dist.new_group(backend="gloo", timeout=patience) if shared else None
        self._answer: torch.Tensor | None = None
        self._pending: dist.Work | None = None
        self._raised: Flag | None = None
        self._due = False

    def beat(self, step: int) -> None:
        """Tell that there is progress between two boundaries, after `step` steps."""
        if self._heartbeat is not None:
            self._heartbeat.beat(step)

    def agree(self, step: int, *, due: bool = False, epoch_ended: int | None = None) -> Agreement:
        """What the ranks agreed on; collective, after every step.

        Args:
            step: Optimizer steps taken, over the whole run.
            due: Whether this rank finds that a checkpoint is due.
            epoch_ended: Number of the epoch that this step ended, if it did.
        """
        self.beat(step)
        if self._fault:
            fault_injection.inject(self._fault, step, epoch_ended)
        self._raised = self._raised or (Flag.read(self._flag) if self._flag else None)
        left = self._raised.deadline - time.monotonic() if self._raised else math.inf
        mine = torch.tensor([float(self._raised is not None), float(due), -left])
        if self._group is None:
            return self._agreed(mine)
        answer = Agreement()
        if self._pending is not None and self._answer is not None:
            self._pending.wait()
            answer = self._agreed(self._answer)
            # What was sent before the last answer was acted upon asks for the same checkpoint again.
            self._due, answer = answer.due and not self._due, replace(answer, due=answer.due and not self._due)
        self._answer = mine
        self._pending = dist.all_reduce(mine, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return answer

    def report(self, preempted: Preempted) -> None:
        """Leave the outcome for the wrapper of this machine; all its ranks leave the same."""
        if self._outcome is not None:
            preempted.write(self._outcome)

    @staticmethod
    def _agreed(answer: torch.Tensor) -> Agreement:
        preempted, due, left = answer.tolist()
        return Agreement(bool(preempted), bool(due), max(-left, 0.0))
