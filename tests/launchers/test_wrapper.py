"""The wrapper: exit codes that an operator can act on, preemption, hangs, and restarts of real torchrun workers."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gatehouse.launchers import wrapper
from gatehouse.launchers.launcher import ATTEMPTS, RESULT
from gatehouse.launchers.ranks import Heartbeat
from gatehouse.launchers.wrapper import HangDetector
from gatehouse.runtime.process import descendants, start_time

STAND_IN = "tests.training.stand_in"


class Job:
    """One run of the wrapper; whatever happens, nothing of it outlives the test."""

    def __init__(self, program: str, directory: Path, *options: str, **environment: str) -> None:
        self.directory = directory
        self.log = directory / "wrapper.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "gatehouse.launchers.wrapper", program, "2", str(directory), *options],
                stdout=log,
                stderr=log,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | environment,
            )

    def ends(self, seconds: float = 90) -> int:
        below = descendants(self.process.pid)
        code = self.process.wait(timeout=seconds)
        assert not [pid for pid in below if start_time(pid)], "a process outlives its wrapper"
        return code

    def waits_for(self, name: str, seconds: float = 180) -> None:
        deadline = time.monotonic() + seconds
        while not (self.directory / name).exists():
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)


@pytest.fixture
def started() -> Iterator[list[Job]]:
    jobs: list[Job] = []
    yield jobs
    for job in jobs:
        job.process.kill()


def _stand_in(
    started: list[Job], directory: Path, what: str, *options: str, steps: int = 1000, **environment: str
) -> Job:
    directory.mkdir(exist_ok=True)
    (directory / "action").write_text(json.dumps({"what": what, "steps": steps}))
    started.append(Job(STAND_IN, directory, *options, **environment))
    return started[-1]


def test_a_hang_is_found_and_told_with_all_stacks_and_what_was_being_written_is_kept(
    started: list[Job], tmp_path: Path
) -> None:
    job = _stand_in(started, tmp_path / "job", "hang", "--hang-seconds", "2")
    assert job.ends() == 124
    log = job.log.read_text()
    assert "Training hangs: rank 1 made no progress for 2 s after step 1" in log
    stacks = [(job.directory / f"stacks-{rank}.txt").read_text() for rank in (0, 1)]
    assert "wait_for_ever" in stacks[1] and "in main" in stacks[0] and "wait_for_ever" not in stacks[0]
    assert "wait_for_ever" in log
    assert (job.directory / "written").exists(), "the checkpoint at hand is lost"


def test_a_worker_that_is_always_killed_is_started_again_apart_and_ends_in_a_code_worth_another_try(
    started: list[Job], tmp_path: Path
) -> None:
    """An operator of one node sets all these, from which torchrun would choose its static rendezvous."""
    operator = {"NNODES": "1", "NODE_RANK": "0", "NPROC_PER_NODE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    environment = {f"PET_{name}": value for name, value in operator.items()}
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / ATTEMPTS).symlink_to("/dev/full")  # A note that cannot be written costs no restart.
    job = _stand_in(started, tmp_path / "job", "die", "--max-restarts", "1", **environment)
    assert job.ends() == 137
    log = job.log.read_text()
    assert "was the first to end, with SIGKILL" in log
    assert (job.directory / "world-2-1-1").exists(), "it was not started again"
    assert "the store of the agent: False" in log, "an attempt reads the keys of the one before"
    assert log.count("torch is there: True") == 4, "a worker imports again what torchrun has imported"


def test_ranks_that_do_not_heed_the_flag_are_ended_when_the_grace_is_over(started: list[Job], tmp_path: Path) -> None:
    job = _stand_in(started, tmp_path / "job", "deaf", "--grace-seconds", "2")
    job.waits_for("world-2-1-0")
    began = time.monotonic()
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() == 143
    assert 2 <= time.monotonic() - began < 120
    assert "Preempted after step" not in job.log.read_text()


def test_a_preempted_run_tells_what_it_saved_in_time_and_ends_in_a_code_worth_another_try(
    started: list[Job], tmp_path: Path
) -> None:
    job = _stand_in(started, tmp_path / "job", "train")
    job.waits_for("world-2-1-0")
    job.process.send_signal(signal.SIGTERM)
    assert job.ends() == 143
    assert re.search(r"Preempted after step \d+, which is saved", job.log.read_text())
    assert not (job.directory / RESULT).exists()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


def test_silence_is_counted_from_look_to_look_and_ends_with_a_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(wrapper, "time", clock)
    heartbeat, detector = Heartbeat(tmp_path, 0), HangDetector(tmp_path)

    def silences(*steps: float) -> list[float]:
        silences_seen = []
        for seconds in steps:
            clock.now += seconds
            silences_seen += detector.look().values()
        return silences_seen

    assert silences(0.5, 0.5, 0.5) == [0.0, 0.5, 1.0]
    assert silences(3600.0) == [2.0], "the wrapper was paused for an hour, and so were its ranks"
    for step in (1, 1):  # Also where it makes progress within a step.
        heartbeat.beat(step)
        assert silences(0.5) == [0.0]
    again = Heartbeat(tmp_path, 0)
    assert silences(0.5, 0.5) == [0.0, 0.5], "a restarted rank begins anew"
    again._numbers[1] = int(start_time(os.getpid()) or 0) - 1
    assert silences(0.5) == [], "another process has the id of a rank that is gone"
