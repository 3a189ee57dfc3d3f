"""Heartbeats: each rank tells by a few bytes in a mapped file which step it is at; the wrapper sees who stands still.

A rank that hangs in a collective or in a loader runs no Python and cannot report itself. The wrapper reads the times,
and where one is too old it asks every rank for its stacks by a signal, which `faulthandler` answers without the
interpreter.
"""

import faulthandler
import mmap
import os
import signal
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from gatehouse.components.artifacts.atomic_file import write_bytes
from gatehouse.process import start_time

FOLDER = "GATEHOUSE_HEARTBEATS"
"""Names the folder in the environment of the ranks."""
_RECORD = struct.Struct("@qqqd")
_SIGNAL = signal.SIGUSR1


class Heartbeat:
    """One rank's pulse. `beat` costs a microsecond and takes no lock."""

    def __init__(self, folder: Path, rank: int) -> None:
        """Begin to beat, and answer the signal for stacks; call it before anything that may hang."""
        self._stacks: IO[str] = open(folder / f"stacks-{rank}.txt", "w")  # noqa: SIM115  # The rank's, for ever.
        faulthandler.register(_SIGNAL, file=self._stacks, all_threads=True)
        self._process = os.getpid(), int(start_time(os.getpid()) or 0)
        path = folder / f"rank-{rank}"
        write_bytes(path, _RECORD.pack(*self._process, 0, time.monotonic()))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _RECORD.size)

    @classmethod
    def of_environment(cls, rank: int) -> "Heartbeat | None":
        """The heartbeat that the wrapper asks for; None where no wrapper watches."""
        folder = os.environ.get(FOLDER)
        return cls(Path(folder), rank) if folder else None

    def beat(self, step: int) -> None:
        """Tell that there was progress: `step` steps are done."""
        _RECORD.pack_into(self._memory, 0, *self._process, step, time.monotonic())


@dataclass(frozen=True)
class Pulse:
    """What the wrapper sees of a rank: when it last told of progress, and after which step."""

    rank: int
    pid: int
    step: int
    silent_seconds: float


def pulses(folder: Path) -> list[Pulse]:
    """All ranks of this machine that have begun to beat and have not ended, by rank."""
    now = time.monotonic()
    found = []
    for path in folder.glob("rank-*"):
        pid, started, step, at = _RECORD.unpack(path.read_bytes())
        # A file outlives its rank, and its process id may be given to another process.
        if start_time(pid) == str(started):
            found.append(Pulse(int(path.name.removeprefix("rank-")), pid, step, now - at))
    return sorted(found, key=lambda pulse: pulse.rank)


def stacks(folder: Path, ranks: list[Pulse], seconds: float = 5.0) -> dict[int, str]:
    """Have every rank write the stacks of all its threads, and return them by rank."""
    texts = {pulse.rank: folder / f"stacks-{pulse.rank}.txt" for pulse in ranks}
    for pulse in ranks:
        with suppress(ProcessLookupError):
            os.kill(pulse.pid, _SIGNAL)
    deadline = time.monotonic() + seconds
    sizes: dict[int, int] = {}
    while time.monotonic() < deadline:
        time.sleep(0.1)
        # Written piece by piece: whole when it has stopped to grow.
        grown = {rank: path.stat().st_size for rank, path in texts.items()}
        if grown == sizes and all(grown.values()):
            break
        sizes = grown
    return {rank: path.read_text(errors="replace") for rank, path in texts.items()}
