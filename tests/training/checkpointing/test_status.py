"""The numbers between a rank and its checkpoint writer: each is read whole while it is written."""

import mmap
import os
import signal

from gatehouse.training.checkpointing.status import HEAD, Status

READS = 1_000_000


def test_a_million_readings_beside_a_writing_process_hold_no_false_number() -> None:
    memory = mmap.mmap(-1, HEAD)  # Anonymous and shared: a child sees what its parent sees.
    status = Status(memory)
    status.written, status.finished = 1, 1
    writer = os.fork()
    if writer == 0:
        while True:
            status.written += 1
            status.finished = status.written
    try:
        written = finished = reads = 1
        while reads < READS or finished < 1000:
            before, finished = finished, status.finished
            assert finished >= before
            before, written = written, status.written
            assert written >= max(before, finished)
            reads += 2
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
