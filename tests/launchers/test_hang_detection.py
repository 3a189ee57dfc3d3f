"""Which ranks count as hanging: those that were watched without a beat, and no others."""

import os
from pathlib import Path

import pytest

from gatehouse.launchers import hang_detection
from gatehouse.launchers.hang_detection import HangDetector, stacks
from gatehouse.launchers.worker.heartbeat import Beat, Heartbeat
from gatehouse.runtime.process import start_time


class Clock:
    """A clock that stands still until it is told otherwise."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(hang_detection, "time", clock)
    return clock


@pytest.fixture
def heartbeat(tmp_path: Path) -> Heartbeat:
    return Heartbeat(tmp_path, 0)


def _silences(detector: HangDetector, clock: Clock, seconds: float, looks: int) -> list[float]:
    """For how long rank 0 was silent at each look, one every `seconds`."""
    found = []
    for _ in range(looks):
        clock.now += seconds
        found += [silence.seconds for silence in detector.look()]
    return found


def test_a_rank_that_beats_between_two_looks_is_not_silent(tmp_path: Path, clock: Clock, heartbeat: Heartbeat) -> None:
    detector = HangDetector(tmp_path)
    for step in (1, 2, 2):  # Also where it makes progress within a step.
        heartbeat.beat(step)
        assert _silences(detector, clock, 0.5, 1) == [0.0]


def test_silence_is_counted_from_look_to_look_and_ends_with_a_beat(
    tmp_path: Path, clock: Clock, heartbeat: Heartbeat
) -> None:
    detector = HangDetector(tmp_path)
    assert _silences(detector, clock, 0.5, 4) == [0.0, 0.5, 1.0, 1.5]
    heartbeat.beat(1)
    assert _silences(detector, clock, 0.5, 2) == [0.0, 0.5]


def test_one_look_alone_never_makes_a_hang(tmp_path: Path, clock: Clock, heartbeat: Heartbeat) -> None:
    """The wrapper was stopped for an hour, and so were its ranks: the next look says nothing about them."""
    detector = HangDetector(tmp_path)
    _silences(detector, clock, 0.5, 2)
    assert _silences(detector, clock, 3600.0, 1) == [1.5]


def test_a_number_that_reads_as_zero_once_makes_no_hang(tmp_path: Path, clock: Clock, heartbeat: Heartbeat) -> None:
    detector = HangDetector(tmp_path)
    heartbeat.beat(7)
    _silences(detector, clock, 0.5, 2)
    heartbeat._numbers[3] = 0
    assert _silences(detector, clock, 0.5, 1) == [0.0]


def test_a_restarted_rank_begins_anew(tmp_path: Path, clock: Clock, heartbeat: Heartbeat) -> None:
    detector = HangDetector(tmp_path)
    heartbeat.beat(1)
    _silences(detector, clock, 0.5, 4)
    again = Heartbeat(tmp_path, 0)
    again.beat(0)
    assert _silences(detector, clock, 0.5, 2) == [0.0, 0.5]


def test_a_file_counts_only_while_the_very_process_that_wrote_it_lives(
    tmp_path: Path, clock: Clock, heartbeat: Heartbeat
) -> None:
    heartbeat.beat(5)
    assert [silence.beat.step for silence in HangDetector(tmp_path).look()] == [5]
    heartbeat._numbers[1] = int(start_time(os.getpid()) or 0) - 1
    assert HangDetector(tmp_path).look() == [], "another process has the id of a rank that is gone"


def test_a_rank_that_ends_before_it_is_asked_for_its_stacks_is_no_error(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    (tmp_path / "stacks-0.txt").write_text("")
    assert stacks(tmp_path, [Beat(0, pid, 1, 5, 5)], seconds=0.1) == {0: ""}
