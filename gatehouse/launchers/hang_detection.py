"""Finds ranks that hang: those that have shown no progress for too long while they were watched."""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from gatehouse.launchers.worker.heartbeat import STACKS_SIGNAL, Beat, BeatFile, stacks_file
from gatehouse.runtime.process import start_time

_LONGEST_LOOK = 1.0
"""Maximum seconds that one look adds to the silence of a rank. If this process was stopped in between (for example a
paused container), the ranks were stopped too, and the time since the last look says nothing about them.
"""


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

    The time is counted here, from look to look, while the numbers of a rank stay the same. The ranks' numbers are never
    compared with a clock, so no single reading can look like a hang.
    """

    def __init__(self, folder: Path) -> None:
        """Watch the ranks that write their progress to `folder`."""
        self._folder = folder
        self._silences: dict[int, Silence] = {}
        self._looked = time.monotonic()

    def look(self) -> list[Silence]:
        """The ranks that have started to beat and have not ended, in order."""
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
    """The beats of ranks whose process still exists: a file can outlive its rank."""
    beats = (BeatFile(path).read() for path in folder.glob("rank-*"))
    return [beat for beat in beats if start_time(beat.pid) == str(beat.started)]


def stacks(folder: Path, beats: list[Beat], seconds: float = 5.0) -> dict[int, str]:
    """Ask ranks to write the stacks of all their threads.

    Args:
        folder: The folder of the heartbeats.
        beats: The beats of the ranks to ask.
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
