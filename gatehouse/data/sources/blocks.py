"""Cuts text into blocks of whole rows, at places that depend on the text before them alone.

A cut stands at the first line end outside quotes after every multiple of the block size, so that an append leaves the
earlier blocks as they are. Whether a place is inside quotes is told by the parity of the quotes before it, which is
exact where each quote that opens follows a comma, a line end or a quote; where one does not, a lexer reads the window.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np
import xxhash

from gatehouse.errors import SourceError


class Place(Enum):
    """Where in a CSV the next byte stands."""

    START = "at the start of a field"
    FIELD = "in a field without quotes, where a quote is a letter like any other"
    QUOTED = "inside quotes"
    AFTER_QUOTE = "after a quote that closes, or that another one follows"


_QUOTE = 0x22
_REST = rb'(?:[^"]+|"")*+("|\Z)'
_LINE_END = rb"\r\n|\n|\r(?!\Z)"
_REST_OF_QUOTED = re.compile(_REST)
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Block:
    """Whole rows of a text: its bytes from `start` to `stop`, in pieces."""

    start: int
    stop: int
    pieces: tuple[memoryview, ...]

    def fingerprint(self) -> str:
        """What identifies the bytes, wherever they stand: XXH3 with 128 bits."""
        digest = xxhash.xxh3_128()
        for piece in self.pieces:
            digest.update(piece)
        return digest.hexdigest()


@cache
def _token(delimiter: bytes, *, at_start: bool) -> re.Pattern[bytes]:
    """A quoted field, or a line end outside quotes; `at_start` where a field may begin with the text."""
    after = rb"(?<=[" + re.escape(delimiter) + rb"\r\n])"
    return re.compile((rb"(?:\A|" + after + rb")" if at_start else after) + b'"' + _REST + b"|" + _LINE_END)


def blocks(
    windows: Iterable[bytes], *, quotes: bool, longest: int, name: str, delimiter: bytes = b","
) -> Iterator[Block]:
    """Cut the text that comes in windows of one size, the last one shorter.

    Args:
        windows: The text from its beginning.
        quotes: Whether line ends inside double quotes belong to a row, as in CSV.
        longest: Bytes that a block may have.
        name: Names the text in messages.
        delimiter: The byte between fields.

    Raises:
        SourceError: if no row ends within `longest` bytes, which is how a quote that is never closed looks.
    """
    position = start = 0
    pieces: list[memoryview] = []
    place = Place.START
    for window in windows:
        cut = 0
        if position:
            cut = line_end(window, delimiter, place) if quotes else window.find(b"\n") + 1
        if cut:
            yield Block(start, position + cut, (*pieces, memoryview(window)[:cut]))
            pieces, start = [], position + cut
        pieces.append(memoryview(window)[cut:])
        if quotes:
            place = _place_after(window if position else window.removeprefix(_BOM), place, delimiter)
        position += len(window)
        if position - start > longest:
            raise SourceError(
                f"{name}: no row ends within {longest:,} bytes after byte {start:,}. A quote is open there and never "
                "closed, or source.block_bytes is too small for its rows."
            )
    if position > start:
        yield Block(start, position, tuple(pieces))


def line_end(text: bytes, delimiter: bytes = b",", place: Place = Place.START) -> int:
    """The index after the first line end outside quotes in a text that begins at `place`; 0 where there is none."""
    for token in _tokens(text, place, delimiter):
        if token[0][0] != _QUOTE:
            return token.end()
    return 0


def _tokens(text: bytes, place: Place, delimiter: bytes) -> Iterator[re.Match[bytes]]:
    """Quoted fields that begin in a text, and line ends outside quotes."""
    if place is Place.AFTER_QUOTE and text.startswith(b'"'):
        rest = _REST_OF_QUOTED.match(text, 1)
    else:
        rest = _REST_OF_QUOTED.match(text) if place is Place.QUOTED else None
    begin = rest.end() if rest else 0
    yield from _token(delimiter, at_start=place is Place.START).finditer(text, begin)


def _place_after(text: bytes, place: Place, delimiter: bytes) -> Place:
    """Where the byte after a text stands."""
    if not text:
        return place
    if text.find(b'"') < 0:
        return place if place is Place.QUOTED else _outside(text, delimiter)
    data = np.frombuffer(text, np.uint8)
    found = np.flatnonzero(data == _QUOTE)
    inside = place is Place.QUOTED
    opening = found[1::2] if inside else found[0::2]
    fits = np.isin(data[opening - 1], list(delimiter + b'\r\n"'))
    if len(opening) and opening[0] == 0:
        fits[0] = place in (Place.START, Place.AFTER_QUOTE)
    if not fits.all():
        return _lexed(text, place, delimiter)
    if inside != bool(len(found) % 2):
        return Place.QUOTED
    return Place.AFTER_QUOTE if text.endswith(b'"') else _outside(text, delimiter)


def _lexed(text: bytes, place: Place, delimiter: bytes) -> Place:
    """As `_place_after`, where quotes also stand in the middle of fields."""
    if place is Place.QUOTED or (place is Place.AFTER_QUOTE and text.startswith(b'"')):
        rest = _REST_OF_QUOTED.match(text, 0 if place is Place.QUOTED else 1)
        if rest is not None and rest.end() == len(text):
            return Place.AFTER_QUOTE if rest[1] else Place.QUOTED
    last = next(iter(deque(_tokens(text, place, delimiter), maxlen=1)), None)
    if last is not None and last.end() == len(text) and last[0][0] == _QUOTE:
        return Place.AFTER_QUOTE if last[1] else Place.QUOTED
    return _outside(text, delimiter)


def _outside(text: bytes, delimiter: bytes) -> Place:
    return Place.START if text[-1:] in delimiter + b"\r\n" else Place.FIELD
