"""The spool of a training loop's metrics: an append costs microseconds, and what was appended outlives the process.

A spool is a folder of segments, files of a fixed size that are mapped into memory. One process appends; another reads
behind it and ships (`shipping.py`). An append is a copy into the mapping: no system call, nothing that gives the
interpreter lock to another thread, and the kernel keeps the pages when the process is killed.

A record is its length (uint32), the CRC-32 of what follows (uint32), time in seconds since 1970 (float64), value
(float64), step (int64), and the metric's name in UTF-8; little-endian, one after another. A length of zero ends what
has been written so far. A record that a kill tore fails its CRC; the next process begins a new segment after it.
"""

import fcntl
import logging
import mmap
import os
import struct
import threading
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 1 << 22
SEGMENTS = 64
_HEADER = struct.Struct("<II")
_BODY = struct.Struct("<ddq")
_LONGEST_NAME = 250
_SUFFIX = ".spool"
_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE, of Linux 5.14 and later.
_USERS, _DROPPED = "users", "dropped"


@dataclass(frozen=True)
class Point:
    """One value of one metric; `at` is when it was logged, in seconds since 1970."""

    name: str
    value: float
    step: int
    at: float


@dataclass(frozen=True, order=True)
class Position:
    """How far a spool was read: the segment's number and the bytes read of it."""

    segment: int = 1
    offset: int = 0


class SpoolWriter:
    """Appends metrics to a spool.

    What is not shipped is bounded: beyond `segments` segments, or where the disk is full, `log` waits at most
    `patience` seconds in all for room, and then drops: that is logged once, and counted in `dropped` and in the spool.
    """

    def __init__(self, folder: Path, *, segments: int = SEGMENTS, patience: float = 1.0) -> None:
        """Open `folder`, creating it where it is missing, and begin a segment after those that are there."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.dropped = 0
        self._lost: int | None = None
        self._lost_before = 0
        self._use = use(folder)
        self._most, self._patience = segments, patience
        self._lock = threading.Lock()
        self._number = max(_segments(folder), default=0)
        self._map: mmap.mmap | None = None
        self._offset = SEGMENT_BYTES

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append every metric with the time of this call."""
        now = time.time()
        with self._lock:
            for name, value in metrics.items():
                self._append(name.encode()[:_LONGEST_NAME], _BODY.pack(now, value, step))

    def take(self, points: Iterable[Point]) -> None:
        """Append points that were logged elsewhere, with the times that they have."""
        with self._lock:
            for point in points:
                self._append(point.name.encode()[:_LONGEST_NAME], _BODY.pack(point.at, point.value, point.step))

    def drop(self, number: int) -> None:
        """Count points that are lost."""
        if number <= 0:
            return
        if not self.dropped:
            logger.warning("Metrics are dropped: what is not shipped fills the spool, or the disk is full.")
        self.dropped += number
        with suppress(OSError):
            if self._lost is None:
                self._lost = os.open(self.folder / _DROPPED, os.O_RDWR | os.O_CREAT, 0o644)
                self._lost_before = int(os.pread(self._lost, 20, 0) or b"0")
            os.pwrite(self._lost, str(self._lost_before + self.dropped).encode(), 0)

    def _append(self, name: bytes, body: bytes) -> None:
        length = len(body) + len(name)
        end = self._offset + _HEADER.size + length
        # Room for one more header stays, so that a zero length ends a full segment too.
        if end + _HEADER.size > SEGMENT_BYTES:
            if not self._next_segment():
                self.drop(1)
                return
            end = self._offset + _HEADER.size + length
        target = self._map
        assert target is not None  # a segment was begun above where there was none
        start = self._offset
        target[start + _HEADER.size : end] = body + name
        # The length comes last: a reader sees a record only when it is whole.
        target[start : start + _HEADER.size] = _HEADER.pack(length, zlib.crc32(name, zlib.crc32(body)))
        self._offset = end

    def _next_segment(self) -> bool:
        while len(_segments(self.folder)) >= self._most:
            if self._patience <= 0:
                return False
            time.sleep(0.01)
            self._patience -= 0.01
        path = self.folder / f"{self._number + 1:08d}{_SUFFIX}"
        try:
            with open(path, "x+b") as file:
                # Blocks are taken now: a full disk found out through the mapping would kill the process.
                os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
                fresh = mmap.mmap(file.fileno(), SEGMENT_BYTES)
            with suppress(OSError, ValueError):
                # All pages at once, instead of a fault at every page that `log` comes to.
                fresh.madvise(_POPULATE_WRITE)
        except OSError:
            path.unlink(missing_ok=True)
            return False
        if self._map is not None:
            self._map.close()
        self._map, self._offset, self._number = fresh, 0, self._number + 1
        return True

    def close(self) -> None:
        """Unmap; what was appended stays."""
        with self._lock:
            if self._map is not None:
                self._map.close()
                self._map = None
            self._offset = SEGMENT_BYTES
            self._patience = 0.0
            self._use.close()
            if self._lost is not None:
                os.close(self._lost)
                self._lost = None


def use(folder: Path) -> IO[str]:
    """Say that this process uses a spool, until the file returned is closed or the process ends, however it does."""
    file = open(folder / _USERS, "a+")  # noqa: SIM115 - held for as long as the spool is in use
    fcntl.flock(file, fcntl.LOCK_SH)
    return file


def in_use(folder: Path) -> bool:
    """Whether any process, this one included, uses a spool."""
    with open(folder / _USERS, "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


def read(folder: Path, position: Position, limit: int) -> tuple[list[Point], Position]:
    """At most `limit` points after `position`, in the order they were appended, and the position after them.

    Safe beside the process that appends. Nothing is returned where nothing new is there.
    """
    points: list[Point] = []
    numbers = sorted(number for number in _segments(folder) if number >= position.segment)
    for number in numbers:
        offset = position.offset if number == position.segment else 0
        with open(folder / f"{number:08d}{_SUFFIX}", "rb") as file:
            file.seek(offset)
            data = file.read()
        at = 0
        while len(points) < limit:
            point, after = _record(data, at)
            if point is None:
                break
            points.append(point)
            at = after
        position = Position(number, offset + at)
        if len(points) == limit:
            break
    return points, position


def dropped(folder: Path) -> int:
    """How many points were lost because the spool was full."""
    try:
        return int((folder / _DROPPED).read_text() or 0)
    except FileNotFoundError:
        return 0


def discard(folder: Path, position: Position) -> None:
    """Delete the segments before `position`."""
    for number in _segments(folder):
        if number < position.segment:
            (folder / f"{number:08d}{_SUFFIX}").unlink(missing_ok=True)


def _segments(folder: Path) -> list[int]:
    return [int(name.removesuffix(_SUFFIX)) for name in os.listdir(folder) if name.endswith(_SUFFIX)]


def _record(data: bytes, offset: int) -> tuple[Point | None, int]:
    if offset + _HEADER.size > len(data):
        return None, offset
    length, checksum = _HEADER.unpack_from(data, offset)
    start = offset + _HEADER.size
    body = data[start : start + length]
    if length < _BODY.size or len(body) < length:
        return None, offset
    at, value, step = _BODY.unpack_from(body)
    if zlib.crc32(body[_BODY.size :], zlib.crc32(body[: _BODY.size])) != checksum:
        return None, offset
    return Point(body[_BODY.size :].decode(errors="replace"), value, step, at), start + length
