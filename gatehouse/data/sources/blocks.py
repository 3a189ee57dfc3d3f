"""Cuts text into blocks of whole rows, at places that depend on the text before them alone.

A cut stands at the first line end outside quotes after every multiple of the block size, so that an append leaves the
earlier blocks as they are. The parity of the quotes before a place tells whether it is inside quotes; this is exact if
every opening quote follows a delimiter, a line end or a quote. A window in which one does not is read by a lexer.
"""

import itertools
import os
import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
import xxhash

from gatehouse.data.sources.raw_file import RawFile
from gatehouse.errors import SourceError

BOM = b"\xef\xbb\xbf"


class Position(Enum):
    """Where in a CSV the next byte stands."""

    START = "at the start of a field"
    FIELD = "in a field without quotes, where a quote is a letter like any other"
    QUOTED = "inside quotes"
    AFTER_QUOTE = "after a quote that closes, or that another one follows"


_QUOTE = 0x22
_REST = rb'(?:[^"]+|"")*+("|\Z)'
_REST_OF_QUOTED = re.compile(_REST)
_LINE_END = rb"\r\n|\n|\r(?!\Z)"
_LINE_ENDS = {True: re.compile(_LINE_END), False: re.compile(rb"\n")}
_CHUNK = 2**18
_buffers = threading.local()


@dataclass(frozen=True)
class Cut:
    """Whole rows of a text, from byte `start` to byte `stop`, and their fingerprint."""

    start: int
    stop: int
    fingerprint: str


@dataclass(frozen=True)
class Block:
    """Whole rows of a text: its bytes from `start` to `stop`, in pieces."""

    start: int
    stop: int
    pieces: tuple[memoryview, ...]

    def cut(self) -> Cut:
        """Its bounds and fingerprint, XXH3 of the bytes with 128 bits."""
        digest = xxhash.xxh3_128()
        for piece in self.pieces:
            digest.update(piece)
        return Cut(self.start, self.stop, digest.hexdigest())


def blocks(
    windows: Iterable[bytes], *, quotes: bool, longest: int, name: str, delimiter: bytes = b","
) -> Iterator[Block]:
    """Cut a text that comes in windows of one size, the last one shorter.

    Raises SourceError if no row ends within `longest` bytes, as after a quote that is never closed.
    """
    position = start = 0
    pieces: list[memoryview] = []
    place = Position.START
    for window in windows:
        cut = 0
        if position:
            cut = line_end(window, delimiter, place) if quotes else window.find(b"\n") + 1
        if cut:
            yield Block(start, position + cut, (*pieces, memoryview(window)[:cut]))
            pieces, start = [], position + cut
        pieces.append(memoryview(window)[cut:])
        if quotes:
            place = _place_after(window if position else window.removeprefix(BOM), place, delimiter)
        position += len(window)
        if position - start > longest:
            raise SourceError(
                f"{name}: no row ends within {longest:,} bytes after byte {start:,}. A quote is open there and never "
                "closed, or source.block_bytes is too small for its rows."
            )
    if position > start:
        yield Block(start, position, tuple(pieces))


def line_end(text: bytes, delimiter: bytes = b",", place: Position = Position.START) -> int:
    """The index after the first line end outside quotes in a text that begins at `place`; 0 if there is none."""
    return next((token.end() for token in _tokens(text, place, delimiter) if token[0][0] != _QUOTE), 0)


@cache
def _token(delimiter: bytes, *, at_start: bool) -> re.Pattern[bytes]:
    """A quoted field, or a line end outside quotes; with `at_start` a field may begin with the text."""
    after = rb"(?<=[" + re.escape(delimiter) + rb"\r\n])"
    return re.compile((rb"(?:\A|" + after + rb")" if at_start else after) + b'"' + _REST + b"|" + _LINE_END)


def _tokens(text: bytes, place: Position, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    """Quoted fields that begin in a text, and line ends outside quotes."""
    if place is Position.AFTER_QUOTE and text.startswith(b'"'):
        rest = _REST_OF_QUOTED.match(text, 1)
    else:
        rest = _REST_OF_QUOTED.match(text) if place is Position.QUOTED else None
    yield from _token(delimiter, at_start=place is Position.START).finditer(text, rest.end() if rest else 0)


def _place_after(text: bytes, place: Position, delimiter: bytes) -> Position:
    """Where the byte after a text stands."""
    if not text:
        return place
    outside = Position.START if text[-1:] in delimiter + b"\r\n" else Position.FIELD
    if text.find(b'"') < 0:
        return place if place is Position.QUOTED else outside
    data = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(data == _QUOTE)
    inside = place is Position.QUOTED
    opening = marks[1::2] if inside else marks[0::2]
    fits = np.isin(data[opening - 1], list(delimiter + b'\r\n"'))
    if len(opening) and opening[0] == 0:
        fits[0] = place in (Position.START, Position.AFTER_QUOTE)
    if fits.all():
        if inside != bool(len(marks) % 2):
            return Position.QUOTED
        return Position.AFTER_QUOTE if text.endswith(b'"') else outside
    # Some quote stands in the middle of a field.
    if inside or (place is Position.AFTER_QUOTE and text.startswith(b'"')):
        rest = _REST_OF_QUOTED.match(text, 0 if inside else 1)
        if rest is not None and rest.end() == len(text):
            return Position.AFTER_QUOTE if rest[1] else Position.QUOTED
    last = next(iter(deque(_tokens(text, place, delimiter), maxlen=1)), None)
    if last is not None and last.end() == len(text) and last[0][0] == _QUOTE:
        return Position.AFTER_QUOTE if last[1] else Position.QUOTED
    return outside


def unquoted_cuts(file: RawFile, size: int, pool: Executor, *, quotes: bool) -> list[Cut] | None:
    """The blocks of a plain file without quotes, found on threads: a second look at a file mostly costs this.

    Without quotes a line end needs no other byte to be understood, so each window is looked at alone. The cuts are
    those that `blocks` gives; None if the file has quotes that matter (as in CSV, with `quotes`), or rows so long that
    blocks would grow.
    """
    with file.opened() as descriptor:
        total = os.fstat(descriptor).st_size
        tokens = {
            at: _LINE_ENDS[quotes].search(os.pread(descriptor, min(size, _CHUNK), at))
            for at in range(size, total, size)
        }
        ends = [at + token.end() if token else None for at, token in tokens.items()]
        places = [0, *(end for end in ends if end), total]
        spans = [(start, stop) for start, stop in itertools.pairwise(places) if start < stop]
        cuts = list(pool.map(lambda span: _cut(descriptor, span[0], span[1], quotes), spans))
    whole = [cut for cut in cuts if cut]
    return whole if len(whole) == len(cuts) and all(ends) else None


def _cut(descriptor: int, start: int, stop: int, quotes: bool) -> Cut | None:
    # One small buffer a thread stays in the processor's cache.
    buffer = _buffers.__dict__.setdefault("buffer", bytearray(_CHUNK))
    digest = xxhash.xxh3_128()
    for at in range(start, stop, _CHUNK):
        with memoryview(buffer)[: min(_CHUNK, stop - at)] as view:
            read = os.preadv(descriptor, [view], at)
            digest.update(view[:read])
        if quotes and buffer.find(b'"', 0, read) >= 0:
            return None
    return Cut(start, stop, digest.hexdigest())
