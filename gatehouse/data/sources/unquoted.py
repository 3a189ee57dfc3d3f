"""The blocks of a plain text without quotes, found and identified on threads: what a second look mostly costs.

Where no quote stands before it, a line end needs no other byte to be understood, so each window is looked at alone. The
cuts and fingerprints are those of `blocks.py`.
"""

import itertools
import os
import re
import threading
from concurrent.futures import Executor
from dataclasses import dataclass

import xxhash

from gatehouse.data.sources.raw_file import RawFile

_CHUNK = 2**18
_LINE_ENDS = {True: re.compile(rb"\r\n|\n|\r(?!\Z)"), False: re.compile(rb"\n")}
_buffers = threading.local()


@dataclass(frozen=True)
class Cut:
    """Whole rows of a text, from byte `start` to byte `stop`, and what identifies them."""

    start: int
    stop: int
    fingerprint: str


def unquoted_cuts(file: RawFile, size: int, pool: Executor, *, quotes: bool) -> list[Cut] | None:
    """The blocks of a file; None where it has quotes that matter, or rows so long that blocks would grow.

    Args:
        file: A plain file.
        size: Bytes between cuts.
        pool: Threads that look.
        quotes: Whether a quote matters, and a carriage return ends a line, as in CSV.
    """
    with file.opened() as descriptor:
        total = os.fstat(descriptor).st_size
        ends = [_line_end(descriptor, at, min(size, _CHUNK), quotes) for at in range(size, total, size)]
        places = [0, *(end for end in ends if end), total]
        spans = [(start, stop) for start, stop in itertools.pairwise(places) if start < stop]
        found = list(pool.map(lambda span: _cut(descriptor, span[0], span[1], quotes), spans))
    cuts = [cut for cut in found if cut]
    return cuts if len(cuts) == len(found) and all(ends) else None


def _line_end(descriptor: int, at: int, length: int, quotes: bool) -> int | None:
    token = _LINE_ENDS[quotes].search(os.pread(descriptor, length, at))
    return at + token.end() if token else None


def _cut(descriptor: int, start: int, stop: int, quotes: bool) -> Cut | None:
    # One small buffer a thread: it stays in the processor's cache, and no memory is asked for again and again.
    buffer = _buffers.__dict__.setdefault("buffer", bytearray(_CHUNK))
    digest = xxhash.xxh3_128()
    for at in range(start, stop, _CHUNK):
        wanted = min(_CHUNK, stop - at)
        with memoryview(buffer)[:wanted] as view:
            read = os.preadv(descriptor, [view], at)
            digest.update(view[:read])
        if quotes and buffer.find(b'"', 0, read) >= 0:
            return None
    return Cut(start, stop, digest.hexdigest())
