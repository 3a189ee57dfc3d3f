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
_OPENS = np.zeros(256, bool)
_OPENS[list(b',\r\n"')] = True
_REST = rb'(?:[^"]+|"")*+("|\Z)'
_LINE_END = rb"\r\n|\n|\r(?!\Z)"
_TOKENS = re.compile(rb'(?<=[,\r\n])"' + _REST + b"|" + _LINE_END)
_TOKENS_AT_START = re.compile(rb'(?:\A|(?<=[,\r\n]))"' + _REST + b"|" + _LINE_END)
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


def blocks(windows: Iterable[bytes], *, quotes: bool, longest: int, name: str) -> Iterator[Block]:
    """Cut the text that comes in windows of one size, the last one shorter.

    Args:
        windows: The text from its beginning.
        quotes: Whether line ends inside double quotes belong to a row, as in CSV.
        longest: Bytes that a block may have.
        name: Names the text in messages.

    Raises:
        SourceError: if no row ends within `longest` bytes, which is how a quote that is never closed looks.
    """
    position = start = 0
    pieces: list[memoryview] = []
    place = Place.START
    for window in windows:
        cut = 0
        if position:
            cut = line_end(window, place) if quotes else window.find(b"\n") + 1
        if cut:
            yield Block(start, position + cut, (*pieces, memoryview(window)[:cut]))
            pieces, start = [], position + cut
        pieces.append(memoryview(window)[cut:])
        if quotes:
            place = _place_after(window if position else window.removeprefix(_BOM), place)
        position += len(window)
        if position - start > longest:
            raise SourceError(
                f"{name}: no row ends within {longest:,} bytes after byte {start:,}. A quote is open there and never "
                "closed, or source.block_bytes is too small for its rows."
            )
    if position > start:
        yield Block(start, position, tuple(pieces))


def line_end(text: bytes, place: Place = Place.START) -> int:
    """The index after the first line end outside quotes in a text that begins at `place`; 0 where there is none."""
    for token in _tokens(text, place):
        if token[0][0] != _QUOTE:
            return token.end()
    return 0


def _tokens(text: bytes, place: Place) -> Iterator[re.Match[bytes]]:
    """Quoted fields that begin in a text, and line ends outside quotes."""
    if place is Place.AFTER_QUOTE and text.startswith(b'"'):
        rest = _REST_OF_QUOTED.match(text, 1)
    else:
        rest = _REST_OF_QUOTED.match(text) if place is Place.QUOTED else None
    begin = rest.end() if rest else 0
    yield from (_TOKENS_AT_START if place is Place.START else _TOKENS).finditer(text, begin)


def _place_after(text: bytes, place: Place) -> Place:
    """Where the byte after a text stands."""
    if not text:
        return place
    if text.find(b'"') < 0:
        return place if place is Place.QUOTED else _outside(text)
    data = np.frombuffer(text, np.uint8)
    found = np.flatnonzero(data == _QUOTE)
    inside = place is Place.QUOTED
    opening = found[1::2] if inside else found[0::2]
    fits = _OPENS[data[opening - 1]]
    if len(opening) and opening[0] == 0:
        fits[0] = place in (Place.START, Place.AFTER_QUOTE)
    if not fits.all():
        return _lexed(text, place)
    if inside != bool(len(found) % 2):
        return Place.QUOTED
    return Place.AFTER_QUOTE if text.endswith(b'"') else _outside(text)


def _lexed(text: bytes, place: Place) -> Place:
    """As `_place_after`, where quotes also stand in the middle of fields."""
    if place is Place.QUOTED or (place is Place.AFTER_QUOTE and text.startswith(b'"')):
        rest = _REST_OF_QUOTED.match(text, 0 if place is Place.QUOTED else 1)
        if rest is not None and rest.end() == len(text):
            return Place.AFTER_QUOTE if rest[1] else Place.QUOTED
    last = next(iter(deque(_tokens(text, place), maxlen=1)), None)
    if last is not None and last.end() == len(text) and last[0][0] == _QUOTE:
        return Place.AFTER_QUOTE if last[1] else Place.QUOTED
    return _outside(text)


def _outside(text: bytes) -> Place:
    return Place.START if text[-1:] in b",\r\n" else Place.FIELD
