"""The spool of a training loop's metrics: an append takes microseconds, and appended points outlive the process.

A spool is a folder of segments: files of a fixed size that are mapped into memory. One process appends; another reads
and ships (`shipping.py`). An append writes words into the mapping. It makes no system call and does not release the
interpreter lock, and the kernel keeps the pages when the process is killed.

A segment has 8-byte words in the machine's byte order, one record after another; a zero marks the end. A record has its
seal, the position of its names in the segment, the time in seconds since 1970 (float64), the step (int64) and the
values (float64). Names are a separate record before the first record that refers to them: the seal, minus the length,
and a JSON list with that length in bytes. A seal is computed from the sum of the words after it, and is written last.
An incomplete record after a kill does not match its seal, and the next process starts a new segment after it.

After a training step, little of this code and data is in the processor's caches, so the cost of an append is the memory
that it touches. That is why names are written once, the checksum is a sum, and `struct` and `zlib` are not used.
"""

import fcntl
import json
import logging
import mmap
import os
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

logger = logging.getLogger(__name__)

SEGMENT_BYTES = 1 << 22
SEGMENTS = 64
_WORD = 8
_HEAD = 4  # Words of a record before its values: seal, position of the names, time, step.
_WIDEST = 500  # Maximum values per record; a call with more writes several.
_LONGEST_NAME = 250
_PRIME = (1 << 61) - 1
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
    """The read position of a spool: the segment's number and the bytes read of it."""

    segment: int = 1
    offset: int = 0


class SpoolWriter:
    """Appends metrics to a spool, from one thread: a lock would take a fifth of the time of an append.

    The space is limited: with more than `segments` segments, or a full disk, `log` waits at most `patience` seconds in
    all for space, and then drops points. This is logged once, and counted in `dropped` and in the spool.
    """

    def __init__(self, folder: Path, *, segments: int = SEGMENTS, patience: float = 1.0) -> None:
        """Open `folder`, creating it if it is missing, and start a segment after the existing ones."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.dropped = 0
        self._lost: memoryview[int] | None = None
        self._use = use(folder)
        self._most, self._patience = segments, patience
        self._number = max(_segments(folder), default=0)
        self._end = 0
        self._enter(memoryview(b""))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Append all metrics with the time of this call."""
        self._append(tuple(metrics), metrics.values(), step, time.time())

    def take(self, points: Iterable[Point]) -> None:
        """Append points that were logged elsewhere, with their own times."""
        for point in points:
            self._append((point.name,), (point.value,), point.step, point.at)

    def drop(self, number: int) -> None:
        """Count lost points."""
        if number <= 0:
            return
        if not self.dropped:
            logger.warning("Metrics are dropped: what is not shipped fills the spool, or the disk is full.")
        self.dropped += number
        with suppress(OSError):
            if self._lost is None:
                self._lost = _number(self.folder / _DROPPED)
                number = self.dropped
            self._lost[0] += number

    def _append(self, names: tuple[str, ...], values: Iterable[float], step: int, at: float) -> None:
        start = self._end
        end = start + _HEAD + len(names)
        if names not in self._places or end > self._room:
            if len(names) > _WIDEST:
                several = iter(values)
                for first in range(0, len(names), _WIDEST):
                    some = names[first : first + _WIDEST]
                    self._append(some, islice(several, len(some)), step, at)
                return
            if not self._name(names):
                self.drop(len(names))
                return
            start = self._end
            end = start + _HEAD + len(names)
        words, floats = self._words, self._floats
        words[start + 1] = self._places[names]
        floats[start + 2] = at
        words[start + 3] = step
        place = start + 3
        for value in values:
            place += 1
            floats[place] = value
        # The seal is written last: a reader sees a record only when it is complete.
        words[start] = _seal(words[start + 1 : end])
        self._end = end

    def _name(self, names: tuple[str, ...]) -> bool:
        """Write names for later records, in a new segment if this one has no space for them and a record."""
        text = json.dumps([name[:_LONGEST_NAME] for name in names], ensure_ascii=False).encode()
        text += b" " * (-len(text) % _WORD)
        length = 2 + len(text) // _WORD
        needed = length + _HEAD + len(names)
        full = names in self._places or self._end + needed > self._room
        if full and (not self._next_segment() or needed > self._room):
            return False
        start = self._end
        self._end += length
        self._words[start + 1] = -len(text)
        self._words[start + 2 : self._end] = memoryview(text).cast("q")
        self._words[start] = _seal(self._words[start + 1 : self._end])
        self._places[names] = start
        return True

    def _next_segment(self) -> bool:
        while len(_segments(self.folder)) >= self._most:
            if self._patience <= 0:
                return False
            time.sleep(0.01)
            self._patience -= 0.01
        path = self.folder / f"{self._number + 1:08d}{_SUFFIX}"
        try:
            with open(path, "x+b") as file:
                # Blocks are reserved now: a full disk at a write into the mapping would kill the process.
                os.posix_fallocate(file.fileno(), 0, SEGMENT_BYTES)
                fresh = mmap.mmap(file.fileno(), SEGMENT_BYTES)
            with suppress(OSError, ValueError):
                # Map all pages at once, instead of a page fault for every page that `log` reaches.
                fresh.madvise(_POPULATE_WRITE)
        except OSError:
            path.unlink(missing_ok=True)
            return False
        self._number += 1
        self._enter(memoryview(fresh))
        return True

    def _enter(self, segment: memoryview) -> None:
        """Append to a segment from its beginning; the previous segment is unmapped with its last view."""
        self._room = len(segment) // _WORD
        self._end = 0
        whole = segment[: self._room * _WORD]
        self._words: memoryview[int] = whole.cast("q")
        self._floats: memoryview[float] = whole.cast("d")
        self._places: dict[tuple[str, ...], int] = {}

    def close(self) -> None:
        """Unmap the segment; appended points stay."""
        self._enter(memoryview(b""))
        self._patience = 0.0
        self._use.close()
        self._lost = None


def use(folder: Path) -> IO[str]:
    """Mark a spool as used by this process, until the returned file is closed or the process ends in any way."""
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
    """Up to `limit` points after `position`, in the order they were appended, and the position after them.

    The points of one record stay together, even if they are more than `limit`. This is safe while another process
    appends.
    """
    points: list[Point] = []
    numbers = sorted(number for number in _segments(folder) if number >= position.segment)
    for number in numbers:
        offset = position.offset if number == position.segment else 0
        words = _words(folder / f"{number:08d}{_SUFFIX}")
        place, full = offset // _WORD, False
        while not full and (record := _record(words, place)) is not None:
            added, after = record
            full = bool(points) and len(points) + len(added) > limit
            if not full:
                points += added
                place = after
        position = Position(number, place * _WORD)
        if full or len(points) >= limit:
            break
    return points, position


def dropped(folder: Path) -> int:
    """How many points were lost because the spool was full."""
    words = _words(folder / _DROPPED) if (folder / _DROPPED).exists() else ()
    return int(words[0]) if words else 0


def discard(folder: Path, position: Position) -> None:
    """Delete the segments before `position`."""
    for number in _segments(folder):
        if number < position.segment:
            (folder / f"{number:08d}{_SUFFIX}").unlink(missing_ok=True)


def _segments(folder: Path) -> list[int]:
    return [int(name.removesuffix(_SUFFIX)) for name in os.listdir(folder) if name.endswith(_SUFFIX)]


def _number(path: Path) -> "memoryview[int]":
    """A number in a mapped file, read and written as a whole. It starts with 0. Raises OSError if the disk is full."""
    with open(path, "a+b") as file:
        os.posix_fallocate(file.fileno(), 0, _WORD)
        return memoryview(mmap.mmap(file.fileno(), _WORD)).cast("q")


def _words(segment: Path) -> memoryview:
    """A segment from the disk, mapped: names are before new records, and what is between is not read again."""
    with open(segment, "rb") as file:
        size = os.fstat(file.fileno()).st_size // _WORD * _WORD
        data = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
    return memoryview(data).cast("q")


def _record(words: memoryview, place: int) -> tuple[list[Point], int] | None:
    """The points of a record (empty for names), and the position after it; None if there is no complete record."""
    names = _names(words, place)
    if names is not None:
        return [], names[1]
    if place + _HEAD > len(words) or (names := _names(words, words[place + 1])) is None:
        return None
    end = place + _HEAD + len(names[0])
    if end > len(words) or words[place] != _seal(words[place + 1 : end]):
        return None
    at, _, *values = words[place + 2 : end].cast("B").cast("d")
    step = words[place + 3]
    return [Point(name, value, step, at) for name, value in zip(names[0], values, strict=True)], end


def _names(words: memoryview, place: int) -> tuple[list[str], int] | None:
    """The names in a record, and the position after it; None if there are none."""
    if not 0 <= place < len(words) - 1 or words[place + 1] >= 0:
        return None
    end = place + 2 - words[place + 1] // _WORD
    if end > len(words) or words[place] != _seal(words[place + 1 : end]):
        return None
    names: list[str] = json.loads(bytes(words[place + 2 : end]))
    return names, end


def _seal(words: memoryview) -> int:
    return sum(words) % _PRIME + 1
