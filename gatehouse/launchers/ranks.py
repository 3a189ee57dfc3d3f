"""How a rank and the wrapper of its machine know of each other, and how the ranks agree between two steps.

A rank that hangs in a collective or in a loader runs no Python, so it cannot report that it hangs. Each rank writes a
few numbers to a mapped file, and the wrapper reads them. The rank also answers a signal with the stacks of its threads:
`faulthandler` writes them without the interpreter.

A SIGTERM does not mean that a rank is preempted, because torchrun also sends it to the other ranks when one rank has
died. So a rank has no handler for SIGTERM: it ends at once and without a collective. It looks for the wrapper's flag
instead; the ranks agree on it between two steps, save, leave an outcome, and end.
"""

import faulthandler
import json
import math
import mmap
import os
import signal
import struct
import time
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from gatehouse.launchers.launcher import collective_seconds
from gatehouse.runtime.process import OWNER, start_time
from gatehouse.store.atomic_file import write_bytes, write_json

FOLDER = "GATEHOUSE_HEARTBEATS"  # environment variable of the ranks: the folder of the heartbeats
FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Environment variables of the ranks: the path of the flag, and the path of the outcome."""
FAULT = "GATEHOUSE_TRAINING_FAULT"  # environment variable of the ranks for tests: the faults that `inject` takes
STACKS_SIGNAL = signal.SIGUSR1
_NUMBERS = struct.Struct("@4q")
_STEP, _COUNT = 2, 3


class _File:
    @classmethod
    def read(cls, path: Path) -> Self | None:
        """The content of the file; None if it is not written."""
        try:
            return cls(**json.loads(path.read_text()))
        except FileNotFoundError:
            return None

    def write(self, path: Path) -> None:
        """Write the file."""
        write_json(path, vars(self))


@dataclass(frozen=True)
class Flag(_File):
    """The preemption flag; the ranks must have ended at `deadline`, in seconds of the monotonic clock."""

    deadline: float


@dataclass(frozen=True)
class Preempted(_File):
    """The outcome of preempted ranks: optimizer steps taken, and whether the checkpoint of this step is complete."""

    step: int
    saved: bool


class Beat(NamedTuple):
    """The last numbers that a rank wrote."""

    rank: int
    pid: int
    started: int  # start time of its process, in clock ticks since boot; needed because process ids are reused
    step: int
    beats: int  # how many it has made

    @classmethod
    def read(cls, path: Path) -> Self:
        """The numbers in a file `rank-<rank>`."""
        return cls(int(path.name.removeprefix("rank-")), *_NUMBERS.unpack(path.read_bytes()))


class Heartbeat:
    """The heartbeat of one rank. `beat` costs less than a microsecond and takes no lock.

    The file holds four 64-bit integers of the machine's byte order: process id, start time, step and count. A reader
    may meet a number that is half written; it then sees one beat too many, never one too few.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        """Start to beat, and answer the signal for stacks; call it before anything that may hang."""
        self._stacks: IO[str] = open(stacks_file(folder, rank), "w")  # noqa: SIM115 - open as long as the process lives
        faulthandler.register(STACKS_SIGNAL, file=self._stacks, all_threads=True)
        path = folder / f"rank-{rank}"
        write_bytes(path, _NUMBERS.pack(os.getpid(), int(start_time(os.getpid()) or 0), 0, 0))
        with open(path, "r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _NUMBERS.size)).cast("q")

    @classmethod
    def of_environment(cls, rank: int) -> "Heartbeat | None":
        """The heartbeat that the wrapper asks for; None without a wrapper."""
        folder = os.environ.get(FOLDER)
        return cls(Path(folder), rank) if folder else None

    def beat(self, step: int) -> None:
        """Record progress: `step` steps are done."""
        self._numbers[_STEP] = step
        self._numbers[_COUNT] += 1


def stacks_file(folder: Path, rank: int) -> Path:
    """The file to which a rank writes its stacks."""
    return folder / f"stacks-{rank}.txt"


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
        import torch.distributed as dist

        self._heartbeat = heartbeat
        flag, outcome = os.environ.get(FLAG), os.environ.get(OUTCOME)
        self._fault = os.environ.get(FAULT, "")
        self._flag_file = Path(flag) if flag else None
        self._outcome = Path(outcome) if outcome else None
        shared = dist.is_initialized() and dist.get_world_size() > 1
        timeout = timedelta(seconds=collective_seconds())
        self._group = dist.new_group(backend="gloo", timeout=timeout) if shared else None
        self._pending: tuple[Any, Any] | None = None  # An exchange: the tensor of its answer, and its work.
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
        import torch
        import torch.distributed as dist

        self.beat(step)
        if self._fault:
            inject(self._fault, step, epoch_ended)
        self._flag = self._flag or (Flag.read(self._flag_file) if self._flag_file else None)
        left = self._flag.deadline - time.monotonic() if self._flag else math.inf
        own = torch.tensor([float(self._flag is not None), float(due), -left])
        if self._group is None:
            return _agreement(own)
        answer = Agreement()
        if self._pending is not None:
            exchanged, work = self._pending
            work.wait()
            answer = _agreement(exchanged)
            # A rank sends `due` once more before it acts on the answer. That is the same checkpoint.
            self._due, answer = answer.due and not self._due, replace(answer, due=answer.due and not self._due)
        self._pending = own, dist.all_reduce(own, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return answer

    def report(self, preempted: Preempted) -> None:
        """Write the outcome for the wrapper of this machine. All ranks of a machine write the same."""
        if self._outcome is not None:
            preempted.write(self._outcome)


def _agreement(answer: Any) -> Agreement:
    """The maximum over all ranks of (preempted, due, minus the seconds left), a tensor of shape (3,)."""
    preempted, due, left = answer.tolist()
    return Agreement(bool(preempted), bool(due), max(-left, 0.0))


def inject(faults: str, step: int, epoch: int | None) -> None:
    """Inject faults, `<action>:<epoch>` or `<action>:@<step>` separated by commas, into the last rank.

    The actions are kill, hang, raise, preempt, and await, which waits until the job is preempted. An action that ends
    with `!` is taken only in the first attempt. `epoch` ended with this step, if it is not None.
    """
    import torch.distributed as dist

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
