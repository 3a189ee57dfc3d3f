"""The barrier between two steps: a heartbeat, the agreement of the ranks, and fault injection for tests."""

import math
import os
import signal
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from gatehouse.launchers.launcher import collective_seconds
from gatehouse.launchers.rank_files import FLAG, OUTCOME, Flag, Heartbeat, Preempted
from gatehouse.runtime.process import OWNER

FAULT = "GATEHOUSE_TRAINING_FAULT"  # environment variable of the ranks for tests: the faults that `inject` takes


@dataclass(frozen=True)
class Agreement:
    """The facts that all ranks know after a barrier."""

    preempted: bool = False  # save and end
    due: bool = False  # write a checkpoint
    seconds: float = math.inf  # that the preempted machine still has


class StepBarrier:
    """The barrier after every step, at which the ranks agree on facts that each of them sees alone.

    The exchange of one barrier runs during the next step, and its answer is read at the barrier after that step. So it
    does not delay the step, and all ranks act at the same step.
    """

    def __init__(self, heartbeat: Heartbeat | None = None) -> None:
        """Prepare; collective where there is a process group of several ranks."""
        self._heartbeat = heartbeat
        flag, outcome = os.environ.get(FLAG), os.environ.get(OUTCOME)
        self._fault = os.environ.get(FAULT, "")
        self._flag_file = Path(flag) if flag else None
        self._outcome = Path(outcome) if outcome else None
        shared = dist.is_initialized() and dist.get_world_size() > 1
        timeout = timedelta(seconds=collective_seconds())
        self._group = dist.new_group(backend="gloo", timeout=timeout) if shared else None
        self._answer: torch.Tensor | None = None
        self._pending: dist.Work | None = None
        self._flag: Flag | None = None
        self._due = False

    def beat(self, step: int) -> None:
        """Record progress between two barriers, after `step` steps."""
        if self._heartbeat is not None:
            self._heartbeat.beat(step)

    def agree(self, step: int, *, due: bool = False, epoch_ended: int | None = None) -> Agreement:
        """The agreement of the ranks; collective, after every step.

        `step` counts the optimizer steps of the whole run. `due` says whether a checkpoint is due on this rank, and
        `epoch_ended` is the number of the epoch that ended with this step, if any.
        """
        self.beat(step)
        if self._fault:
            inject(self._fault, step, epoch_ended)
        self._flag = self._flag or (Flag.read(self._flag_file) if self._flag_file else None)
        left = self._flag.deadline - time.monotonic() if self._flag else math.inf
        own = torch.tensor([float(self._flag is not None), float(due), -left])
        if self._group is None:
            return _agreement(own)
        answer = Agreement()
        if self._pending is not None and self._answer is not None:
            self._pending.wait()
            answer = _agreement(self._answer)
            # A rank sends `due` once more before it acts on the answer. That is the same checkpoint.
            self._due, answer = answer.due and not self._due, replace(answer, due=answer.due and not self._due)
        self._answer = own
        self._pending = dist.all_reduce(own, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return answer

    def report(self, preempted: Preempted) -> None:
        """Write the outcome for the wrapper of this machine. All ranks of a machine write the same."""
        if self._outcome is not None:
            preempted.write(self._outcome)


def _agreement(answer: torch.Tensor) -> Agreement:
    """The maximum over all ranks of (preempted, due, minus the seconds left), shape (3,)."""
    preempted, due, left = answer.tolist()
    return Agreement(bool(preempted), bool(due), max(-left, 0.0))


def inject(faults: str, step: int, epoch: int | None) -> None:
    """Inject faults, `<action>:<epoch>` or `<action>:@<step>` separated by commas, into the last rank.

    The actions are kill, hang, raise, preempt, and await, which waits until the job is preempted. An action that ends
    with `!` is taken only in the first attempt. `epoch` ended with this step, if it is not None.
    """
    for fault in faults.split(","):
        action, _, when = fault.partition(":")
        if when not in (f"@{step}", str(epoch)) or dist.get_rank() != dist.get_world_size() - 1:
            continue
        if action.endswith("!") and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0":
            continue
        match action.rstrip("!"):
            case "preempt":
                os.kill(int(os.environ[OWNER].partition(":")[0]), signal.SIGTERM)
                time.sleep(1.0)
            case "await":
                while not os.path.exists(os.environ[FLAG]):
                    time.sleep(0.01)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
            case "raise":
                raise ValueError(f"injected fault, step {step}")
