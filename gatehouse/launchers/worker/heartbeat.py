"""Heartbeats: each rank writes a few numbers to a mapped file, which show that it makes progress, and its step.

A rank that hangs in a collective or in a loader runs no Python, so it cannot report that it hangs. Another process
reads its numbers (`hang_detection`). The rank also answers a signal with the stacks of its threads: `faulthandler`
writes them without the interpreter.

The file holds four 64-bit integers of the machine's byte order: process id, start time of the process (clock ticks
since boot), the step, and a count that grows with every beat. Each is stored and read by one instruction, because it
is aligned and goes through a typed view. `struct` must not store them: it sets its target to zero before it packs.
"""

import faulthandler
import mmap
import os
import signal
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gatehouse.runtime.process import start_time
from gatehouse.store.atomic_file import write_bytes

FOLDER = "GATEHOUSE_HEARTBEATS"
"""Names the folder in the environment of the ranks."""
STACKS_SIGNAL = signal.SIGUSR1
_STEP, _COUNT = 2, 3
_BYTES = 32


@dataclass(frozen=True)
class Beat:
    """The last numbers that a rank wrote.

    Attributes:
        rank: The rank.
        pid: Its process.
        started: Start time of the process, in clock ticks since boot; needed because process ids are reused.
        step: Optimizer steps done.
        count: Grows with every beat.
    """

    rank: int
    pid: int
    started: int
    step: int
    count: int


class Heartbeat:
    """The heartbeat of one rank. `beat` costs less than a microsecond and takes no lock."""

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
    """The file of one rank, mapped for reading."""

    def __init__(self, path: Path) -> None:
        """Map the file; it stays mapped when a restarted rank replaces it."""
        self._rank = int(path.name.removeprefix("rank-"))
        with open(path, "rb") as file:
            self._numbers = memoryview(mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)).cast("q")

    def read(self) -> Beat:
        """The present numbers; each is complete, and the count is not newer than the step."""
        count = self._numbers[_COUNT]
        return Beat(self._rank, self._numbers[0], self._numbers[1], self._numbers[_STEP], count)


def stacks_file(folder: Path, rank: int) -> Path:
    """The file to which a rank writes its stacks when asked."""
    return folder / f"stacks-{rank}.txt"
