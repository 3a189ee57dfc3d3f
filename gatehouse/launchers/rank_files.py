"""The files by which the ranks of a machine and their wrapper know of each other: heartbeats, preemption, outcome.

A rank that hangs in a collective or in a loader runs no Python, so it cannot report that it hangs. Each rank writes a
few numbers to a mapped file, and the wrapper reads them. The rank also answers a signal with the stacks of its threads:
`faulthandler` writes them without the interpreter.

A SIGTERM does not mean that a rank is preempted, because torchrun also sends it to the other ranks when one rank has
died. So a rank has no handler for SIGTERM: it ends at once and without a collective. It looks for the wrapper's flag
instead; the ranks agree on it between two steps, save, leave an outcome, and end.
"""

import faulthandler
import json
import mmap
import os
import signal
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Self

from gatehouse.runtime.process import start_time
from gatehouse.store.atomic_file import write_bytes, write_json

FOLDER = "GATEHOUSE_HEARTBEATS"  # environment variable of the ranks: the folder of the heartbeats
FLAG, OUTCOME = "GATEHOUSE_PREEMPTION_FLAG", "GATEHOUSE_OUTCOME"
"""Environment variables of the ranks: the path of the flag, and the path of the outcome."""
STACKS_SIGNAL = signal.SIGUSR1
_STEP, _COUNT = 2, 3
_BYTES = 32


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


@dataclass(frozen=True)
class Beat:
    """The last numbers that a rank wrote."""

    rank: int
    pid: int
    started: int  # start time of its process, in clock ticks since boot; needed because process ids are reused
    step: int
    count: int  # grows with every beat


class Heartbeat:
    """The heartbeat of one rank. `beat` costs less than a microsecond and takes no lock.

    The file holds four 64-bit integers of the machine's byte order: process id, start time, step and count. Each is
    stored and read by one instruction, because it is aligned and goes through a typed view. `struct` must not store
    them: it sets its target to zero before it packs.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        """Start to beat, and answer the signal for stacks; call it before anything that may hang."""
        self._stacks: IO[str] = open(stacks_file(folder, rank), "w")  # noqa: SIM115 - open as long as the process lives
        faulthandler.register(STACKS_SIGNAL, file=self._stacks, all_threads=True)
        path = folder / f"rank-{rank}"
        write_bytes(path, struct.pack("@4q", os.getpid(), int(start_time(os.getpid()) or 0), 0, 0))
        with open(path, "r+b") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _BYTES)).cast("q")
        self._count = 0

    @classmethod
    def of_environment(cls, rank: int) -> "Heartbeat | None":
        """The heartbeat that the wrapper asks for; None without a wrapper."""
        folder = os.environ.get(FOLDER)
        return cls(Path(folder), rank) if folder else None

    def beat(self, step: int) -> None:
        """Record progress: `step` steps are done."""
        self._count += 1
        self._numbers[_STEP] = step
        self._numbers[_COUNT] = self._count


class BeatFile:
    """The file of one rank, mapped for reading; it stays mapped when a restarted rank replaces it."""

    def __init__(self, path: Path) -> None:
        self._rank = int(path.name.removeprefix("rank-"))
        with open(path, "rb") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)).cast("q")

    def read(self) -> Beat:
        """The current numbers; each is complete, and the count is not newer than the step."""
        count = self._numbers[_COUNT]
        return Beat(self._rank, self._numbers[0], self._numbers[1], self._numbers[_STEP], count)


def stacks_file(folder: Path, rank: int) -> Path:
    """The file to which a rank writes its stacks."""
    return folder / f"stacks-{rank}.txt"
