"""Order and values in a spool survive kills and full disks, and its space is bounded."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.tracking import spool
from gatehouse.tracking.spool import Point, Position, SpoolWriter, discard, dropped, in_use, read

WRITER = """
import sys
from pathlib import Path
from gatehouse.tracking.spool import SpoolWriter
writer = SpoolWriter(Path(sys.argv[1]))
for step in range(10**9):
    writer.log({"loss": float(step)}, step)
    if step == 1000:
        print("ready", flush=True)
"""


def all_points(folder: Path, limit: int = 1000) -> list[Point]:
    points, position = read(folder, Position(), limit)
    everything = list(points)
    while points:
        points, position = read(folder, position, limit)
        everything += points
    return everything


@given(
    logged=st.lists(st.tuples(st.text(max_size=40), st.floats(allow_nan=False), st.integers(0, 2**62)), max_size=60),
    limit=st.integers(1, 7),
    room=st.integers(400, 1200),
)
def test_points_are_read_in_the_order_of_logging(
    tmp_path_factory: pytest.TempPathFactory, logged: list[tuple[str, float, int]], limit: int, room: int
) -> None:
    folder = tmp_path_factory.mktemp("spool")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spool, "SEGMENT_BYTES", room)
        writer = SpoolWriter(folder, segments=10_000)
        for name, value, step in logged:
            writer.log({name: value}, step)
    assert [(point.name, point.value, point.step) for point in all_points(folder, limit)] == logged


def test_a_reader_continues_at_its_position(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    assert read(tmp_path, Position(), 10)[0] == []
    began = time.time()
    writer.log({"a": 1.0}, 1)
    first, position = read(tmp_path, Position(), 10)
    writer.log({"b": 2.0}, 2)
    second, _ = read(tmp_path, position, 10)
    assert [point.name for point in first + second] == ["a", "b"]
    assert began <= first[0].at <= time.time()


def test_a_killed_writer_loses_nothing_and_the_next_one_appends(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = all_points(tmp_path, 50_000)
    assert len(before) > 1000 and [point.step for point in before] == list(range(len(before)))
    SpoolWriter(tmp_path).log({"next": 1.0}, 0)
    assert all_points(tmp_path, 50_000)[len(before) :][0].name == "next"


def test_the_last_segment_of_a_writer_that_ends_without_closing_is_read(tmp_path: Path) -> None:
    ending = WRITER.replace("10**9", "200_000") + "print(writer._number)"
    last = int(subprocess.check_output([sys.executable, "-c", ending, str(tmp_path)], text=True).split()[-1])
    assert last > 1, "one segment held everything"
    assert not in_use(tmp_path)
    assert [point.step for point in all_points(tmp_path, 50_000)] == list(range(200_000))
    alone, _ = read(tmp_path, Position(last, 0), 1)
    assert 0 < alone[0].step < 199_999


@pytest.mark.parametrize("word", range(5))
@pytest.mark.parametrize("torn", ["flipped", "unwritten"])
def test_a_torn_record_ends_its_segment_and_not_the_spool(tmp_path: Path, word: int, torn: str) -> None:
    writer = SpoolWriter(tmp_path)
    for step in range(1, 4):
        writer.log({"loss": float(step)}, step)
    (segment,) = tmp_path.glob("*.spool")
    data = bytearray(segment.read_bytes())
    # Two words and the name, then records of five words; the place of the names is zero as it is.
    at = (2 + 1 + 5 + word) * 8
    data[at : at + 8] = bytes(8) if torn == "unwritten" and word != 1 else bytes([data[at] ^ 1]) + data[at + 1 : at + 8]
    segment.write_bytes(data)
    SpoolWriter(tmp_path).log({"next": 1.0}, 0)
    assert [point.name for point in all_points(tmp_path)] == ["loss", "next"]


def test_a_call_with_many_metrics_and_names_that_come_and_go_arrive_whole(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    wide = {f"metric_{number}": float(number) for number in range(1300)}
    writer.log(wide, 1)
    for step in range(3):
        writer.log({"loss": 1.0} if step % 2 else {"loss": 1.0, "é" * 1000: float("nan")}, step)
    points = all_points(tmp_path, 300)
    assert {point.name: point.value for point in points[:1300]} == wide
    assert [point.name for point in points[1300:]] == ["loss", "é" * 250, "loss", "loss", "é" * 250]


def test_space_is_bounded_and_dropped_points_are_counted_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spool, "SEGMENT_BYTES", 200)
    writer = SpoolWriter(tmp_path, segments=2, patience=0.05)
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for step in range(1000):
        writer.log({"loss": 1.0}, step)
    assert 0.05 <= sum(slept) <= 0.07
    kept = all_points(tmp_path)
    assert len(kept) + writer.dropped == 1000 and writer.dropped > 0
    assert dropped(tmp_path) == writer.dropped
    assert [record.message.split(":")[0] for record in caplog.records] == ["Metrics are dropped"]
    writer.close()
    again = SpoolWriter(tmp_path, segments=2, patience=0.0)
    again.drop(2)
    assert dropped(tmp_path) == writer.dropped + 2, "the count of a spool continues with the next process"
    writer = again
    discard(tmp_path, Position(3, 0))
    writer.log({"again": 1.0}, 0)
    assert [point.name for point in all_points(tmp_path)] == ["again"]


def test_a_spool_is_in_use_until_its_writer_closes_it_or_is_gone(tmp_path: Path) -> None:
    writer = SpoolWriter(tmp_path)
    assert in_use(tmp_path)
    writer.close()
    assert not in_use(tmp_path)
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    assert in_use(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not in_use(tmp_path)


def test_a_full_disk_drops_metrics_and_not_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    writer = SpoolWriter(tmp_path)
    writer.log({"loss": 1.0, "accuracy": 0.5}, 1)
    assert writer.dropped == 2 and list(tmp_path.glob("*.spool")) == []
