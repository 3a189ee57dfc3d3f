"""Heartbeats: whose they are."""

import os
import time
from pathlib import Path

from gatehouse.components.launchers.worker import heartbeat
from gatehouse.process import start_time


def _leave(folder: Path, pid: int, started: int) -> None:
    record = heartbeat._RECORD.pack(pid, started, 5, time.monotonic() - 1000)
    (folder / "rank-0").write_bytes(record)


def test_a_file_counts_only_while_the_very_process_that_wrote_it_lives(tmp_path: Path) -> None:
    mine = int(start_time(os.getpid()) or 0)
    _leave(tmp_path, os.getpid(), mine)
    assert [pulse.step for pulse in heartbeat.pulses(tmp_path)] == [5]
    _leave(tmp_path, os.getpid(), mine - 1)
    assert heartbeat.pulses(tmp_path) == [], "another process has the id of a rank that is gone"


def test_a_rank_that_ends_before_it_is_asked_for_its_stacks_is_no_error(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / "stacks-0.txt").write_text("")
    assert heartbeat.stacks(tmp_path, [heartbeat.Pulse(0, pid, 5, 1000.0)], seconds=0.1) == {0: ""}
