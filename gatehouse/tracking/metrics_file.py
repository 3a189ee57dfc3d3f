"""Metrics of a job as lines of JSON in one file: processes append to it, and others read on from an offset.

A line is one call: `{"at": 1767225600.25, "step": 7, "metrics": {"loss": 0.25, "norm": "nan"}}`, with the time in
seconds since 1970. A number is written as Python's `repr` and is read back with the same bits; NaN and infinity, which
JSON lacks, are the texts `nan`, `inf` and `-inf`.
"""

import json
import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

WRITE_SECONDS = 1.0
DROPPED = "gatehouse.metrics_dropped"
"""Metric: the number of calls that could not be written so far."""
_READ_BYTES = 1 << 16
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True)
class Point:
    """One value of one metric; `at` is when it was logged, in seconds since 1970."""

    name: str
    value: float
    step: int
    at: float


class MetricsFile:
    """Appends metrics to a file. `log` only queues them; a thread writes the queue each second.

    Written lines outlive a SIGKILL of the process. What cannot be written, for example as the disk is full, is dropped:
    this is logged once, and counted in the metric `gatehouse.metrics_dropped`.
    """

    def __init__(self, path: Path) -> None:
        """Append to `path`, which is created if it is missing."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._dropped, self._reported = path, 0, 0
        self._queue: deque[tuple[float, int, dict[str, float]]] = deque()
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        # A process that was killed while it wrote may have left half a line. Readers pass over it.
        size = os.fstat(self._file).st_size
        self._torn = size > 0 and os.pread(self._file, 1, size - 1) != b"\n"
        self._writing, self._closed = threading.Lock(), threading.Event()
        threading.Thread(target=self._write_each_second, name="write-metrics", daemon=True).start()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Queue all metrics with the time of this call. It makes no system call, and waits for nothing."""
        self._queue.append((time.time(), step, dict(metrics)))

    def flush(self) -> None:
        """Write what is queued, for example at the end of an epoch."""
        with self._writing:
            calls = [self._queue.popleft() for _ in range(len(self._queue))]
            if not calls:
                return
            number = len(calls)
            if self._dropped > self._reported:
                at, step, _ = calls[0]
                calls.insert(0, (at, step, {DROPPED: self._dropped}))
            lost = self._append(b"".join(map(_line, calls)))
            self._reported = self._reported if lost else self._dropped
            self._dropped += min(lost, number)

    def append(self, lines: bytes) -> None:
        """Append whole lines of another such file."""
        with self._writing:
            self._dropped += self._append(lines)

    def close(self) -> None:
        """Write what is queued, and close the file."""
        self._closed.set()
        self.flush()
        os.close(self._file)

    def _write_each_second(self) -> None:
        while not self._closed.wait(WRITE_SECONDS):
            self.flush()

    def _append(self, lines: bytes) -> int:
        """Write lines; returns how many of the last ones are not written."""
        data = memoryview(b"\n" + lines if self._torn else lines)
        try:
            while data:
                data = data[os.write(self._file, data) :]
            self._torn = False
        except OSError as error:
            if not self._dropped:
                logger.warning("Metrics are dropped while %s cannot be written: %s", self._path, error)
            self._torn = True
        return bytes(data)[-len(lines) :].count(b"\n")


def _line(call: tuple[float, int, dict[str, float]]) -> bytes:
    at, step, metrics = call
    values: dict[str, float | str] = {name: float(value) for name, value in metrics.items()}
    try:
        text = _encode({"at": at, "step": int(step), "metrics": values})
    except ValueError:  # JSON has no NaN and no infinity.
        values |= {name: repr(value) for name, value in values.items() if not math.isfinite(float(value))}
        text = _encode({"at": at, "step": int(step), "metrics": values})
    return text.encode(errors="replace") + b"\n"


def read_lines(path: Path, offset: int = 0, most: int = _READ_BYTES) -> tuple[bytes, int]:
    """Whole lines after `offset`, of about `most` bytes, and the offset after them; none if there is no file."""
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            lines = file.readlines(most)
    except FileNotFoundError:
        return b"", offset
    if lines and not lines[-1].endswith(b"\n"):
        lines.pop()  # It is being written.
    data = b"".join(lines)
    return data, offset + len(data)


def points_of(lines: bytes) -> list[Point]:
    """The points of whole lines, in order."""
    points: list[Point] = []
    for line in filter(None, lines.split(b"\n")):
        try:
            call = json.loads(line)
            values = [(name, float(value)) for name, value in call["metrics"].items()]
            points += [Point(name, value, int(call["step"]), float(call["at"])) for name, value in values]
        except (ValueError, TypeError, KeyError, AttributeError):
            logger.warning(
                "A line of metrics is left out, which a killed process or a full disk has cut: %r", line[:80]
            )
    return points


def read_points(path: Path, offset: int = 0) -> tuple[list[Point], int]:
    """The points of some whole lines after `offset`, and the offset after them; those of a line stay together."""
    lines, after = read_lines(path, offset)
    return points_of(lines), after
