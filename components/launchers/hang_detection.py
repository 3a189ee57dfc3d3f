"""Finds ranks that hang: those that have shown no progress for too long while they were watched."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gatehouse.components.launchers.worker.heartbeat import STACKS_SIGNAL, Beat, BeatFile, stacks_file
from gatehouse.process import start_time

_LONGEST_LOOK = 1.0
"""Seconds that one look may add to the silence of a rank. If this process was stopped in between, as by a pause of the
container, the ranks were stopped as well, and the time since the last look says nothing about them."""


@dataclass(frozen=True)
class Silence:
    """For how long a rank has shown no progress.

    Attributes:
        beat: Its last beat.
        seconds: How long it has been watched since that beat.
    """

    beat: Beat
    seconds: float


class HangDetector:
    """Watches the ranks of this machine.

    The time is counted here, from look to look, as long as the numbers of a rank stay the same. No number of a rank is
    compared with a clock: whatever is read, one reading alone never makes a hang.
    """

    def __init__(self, folder: Path) -> None:
        """Watch the ranks that tell of their progress in `folder`."""
        self._folder = folder
        self._silences: dict[int, Silence] = {}
        self._looked = time.monotonic()

    def look(self) -> list[Silence]:
        """The ranks that have begun to beat and have not ended, in order."""
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, _LONGEST_LOOK), now
        found = {}
        for beat in _living(self._folder):
            before = self._silences.get(beat.rank)
            same = before is not None and before.beat == beat
            found[beat.rank] = Silence(beat, before.seconds + passed if before and same else 0.0)
        self._silences = found
        return [found[rank] for rank in sorted(found)]


def _living(folder: Path) -> list[Beat]:
    """The beats of ranks whose very process lives: a file outlives its rank."""
    beats = (BeatFile(path).read() for path in folder.glob("rank-*"))
    return [beat for beat in beats if start_time(beat.pid) == str(beat.started)]


def stacks(folder: Path, beats: list[Beat], seconds: float = 5.0) -> dict[int, str]:
    """Have ranks write the stacks of all their threads.

    Args:
        folder: The folder of the heartbeats.
        beats: Of the ranks to ask.
        seconds: How long to wait for all of them.

    Returns:
        The stacks by rank; empty for a rank that did not answer.
    """
    files = {beat.rank: stacks_file(folder, beat.rank) for beat in beats}
    for beat in beats:
        with suppress(ProcessLookupError):
            os.kill(beat.pid, STACKS_SIGNAL)
    deadline = time.monotonic() + seconds
    before: dict[int, int] = {}
    while time.monotonic() < deadline:
        time.sleep(0.1)
        # A rank writes its stacks piece by piece. They are complete when the file has stopped growing.
        sizes = {rank: path.stat().st_size for rank, path in files.items()}
        if sizes == before and all(sizes.values()):
            break
        before = sizes
    return {rank: path.read_text(errors="replace") for rank, path in files.items()}
