"""Values in a metrics file keep their bits and order, and survive kills and full disks."""

import math
import os
import signal
import struct
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gatehouse.tracking.metrics_file import DROPPED, MetricsFile, Point, read_points

WRITER = """
import sys, time
from pathlib import Path
from gatehouse.tracking.metrics_file import MetricsFile
metrics, began = MetricsFile(Path(sys.argv[1])), time.monotonic()
for step in range(10**9):
    metrics.log({"loss": float(step)}, step)
    print(step, flush=True)
    time.sleep(0.001)
"""


def all_points(path: Path) -> list[Point]:
    points, offset = read_points(path)
    everything = list(points)
    while points:
        points, offset = read_points(path, offset)
        everything += points
    return everything


def bits(value: float) -> bytes:
    return b"nan" if math.isnan(value) else struct.pack("d", value)


@given(st.lists(st.tuples(st.text(max_size=40), st.floats(), st.integers(0, 2**62)), max_size=60))
def test_names_values_steps_and_times_are_read_as_they_were_logged(
    tmp_path_factory: pytest.TempPathFactory, logged: list[tuple[str, float, int]]
) -> None:
    path, began = tmp_path_factory.mktemp("job") / "metrics", time.time()
    with closing(MetricsFile(path)) as metrics:
        for name, value, step in logged:
            metrics.log({name: value}, step)
    points = all_points(path)
    assert [(point.name, bits(point.value), point.step) for point in points] == [
        (name, bits(value), step) for name, value, step in logged
    ]
    times = [began, *(point.at for point in points), time.time()]
    assert times == sorted(times)


def test_a_call_with_many_metrics_of_numpy_arrives_whole_and_a_reader_continues_at_its_offset(tmp_path: Path) -> None:
    wide = {f"metric_{number}": np.float32(number) for number in range(5000)}
    with closing(MetricsFile(tmp_path / "metrics")) as metrics:
        assert read_points(tmp_path / "metrics") == ([], 0)
        metrics.log(wide, int(np.int64(1)))
        metrics.log({"loss": 1.0}, 2)
        metrics.flush()
        first, offset = read_points(tmp_path / "metrics")
        assert {point.name: point.value for point in first} == {name: float(value) for name, value in wide.items()}
        assert [point.name for point in read_points(tmp_path / "metrics", offset)[0]] == ["loss"]


def test_a_killed_writer_loses_its_last_second_at_most_and_the_next_one_appends(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "metrics")], stdout=subprocess.PIPE)
    assert process.stdout is not None
    said: dict[int, float] = {}
    while not said or time.monotonic() < said[0] + 2.5:
        said[int(process.stdout.readline())] = time.monotonic()
    os.kill(process.pid, signal.SIGKILL)
    killed = time.monotonic()
    process.wait()
    before = all_points(tmp_path / "metrics")
    assert [point.step for point in before] == list(range(len(before)))
    safe = max(step for step, at in said.items() if at < killed - 1.5)  # Half a second for a busy machine.
    assert len(before) > safe > 0
    with closing(MetricsFile(tmp_path / "metrics")) as metrics:
        metrics.log({"next": 1.0}, 0)
    assert [point.name for point in all_points(tmp_path / "metrics")[len(before) :]] == ["next"]


@pytest.mark.parametrize("rest", [0, 1, 20, -2, -1])
def test_a_line_that_a_kill_has_cut_is_left_out_and_no_other(tmp_path: Path, rest: int) -> None:
    path = tmp_path / "metrics"
    with closing(MetricsFile(path)) as metrics:
        for step in range(2):
            metrics.log({"loss": float(step)}, step)
    first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + last[:rest])
    assert [point.step for point in all_points(path)] == [0]
    with closing(MetricsFile(path)) as metrics:
        metrics.log({"loss": 2.0}, 2)
    # Only its end is missing of the last one, so that it is whole.
    assert [point.step for point in all_points(path)] == ([0, 1, 2] if rest == -1 else [0, 2])


def test_two_processes_append_to_one_file(tmp_path: Path) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path / "metrics")], stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    time.sleep(0.1)
    while len(all_points(tmp_path / "metrics")) < 1000:
        time.sleep(0.1)
    for writer in writers:
        writer.kill()
        writer.wait()
    steps = [point.step for point in all_points(tmp_path / "metrics")]
    assert sorted(set(steps)) == list(range(max(steps) + 1))


FULL = """
import signal, resource, sys
from pathlib import Path
from gatehouse.tracking.metrics_file import MetricsFile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
metrics = MetricsFile(Path(sys.argv[1]))
for limit in (1000, 2000, 10**6):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for step in range(40):
        metrics.log({"loss": 1.0}, step + limit)
        if step % 10 == 9:
            metrics.flush()
metrics.close()
"""


def test_a_full_disk_drops_metrics_and_not_the_program_and_they_are_counted(tmp_path: Path) -> None:
    """The system refuses to let the file grow, as a full disk does: it is half of a line that is written then."""
    ended = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "metrics")], stderr=subprocess.PIPE, text=True, check=True
    )
    assert ended.stderr.count("Metrics are dropped") == 1
    points = all_points(tmp_path / "metrics")
    kept = [point for point in points if point.name == "loss"]
    assert 0 < len(kept) < 120 and [point.step for point in kept] == sorted(point.step for point in kept)
    assert {point.step for point in kept} >= set(range(10**6, 10**6 + 40)), "all of what came when there was space"
    assert [point.value for point in points if point.name == DROPPED][-1] == 120 - len(kept)
