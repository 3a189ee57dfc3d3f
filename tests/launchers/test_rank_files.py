"""Heartbeats: what is read beside a rank that beats is never a number that it did not write."""

import os
import signal
from pathlib import Path

from gatehouse.launchers.rank_files import BeatFile, Heartbeat
from gatehouse.runtime.process import start_time

READS = 2_000_000


def test_two_million_readings_beside_a_beating_process_hold_no_false_number(tmp_path: Path) -> None:
    heartbeat = Heartbeat(tmp_path, 3)
    heartbeat.beat(1)
    file = BeatFile(tmp_path / "rank-3")
    writer = os.fork()
    if writer == 0:
        step = 1
        while True:
            step += 1
            heartbeat.beat(step)
    try:
        began = file.read()
        assert (began.rank, began.pid, began.started) == (3, os.getpid(), int(start_time(os.getpid()) or 0))
        numbers, step, reads = file._numbers, began.step, 0
        while reads < READS or step < 1000:
            before, step = step, numbers[2]
            assert step >= before
            reads += 1
        after = file.read()
        # The step is stored before the count and read after it.
        assert began.step < after.count <= after.step
        assert (after.pid, after.started) == (began.pid, began.started)
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
