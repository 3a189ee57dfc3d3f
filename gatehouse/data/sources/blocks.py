"""Cuts text that comes in windows into blocks of whole rows; a line end inside quotes ends no row."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

import numpy as np

from gatehouse.errors import SourceError

_QUOTE = ord('"')


def blocks(
    windows: Iterable[bytes], *, quotes: bool, longest: int, name: str, delimiter: bytes = b","
) -> Iterator[bytes]:
    """Cut a text after the last row that ends in each window.

    Raises SourceError if no row ends within `longest` bytes, as after a quote that is never closed.
    """
    text, start = b"", 0
    for window in windows:
        text += window
        if end := last_row_end(text, delimiter) if quotes else text.rfind(b"\n") + 1:
            yield text[:end]
            text, start = text[end:], start + end
        if len(text) > longest:
            raise SourceError(
                f"{name}: no row ends within {longest:,} bytes after byte {start:,}. A quote is open there and never "
                "closed, or a row is too long."
            )
    if text:
        yield text


def first_row_end(text: bytes, delimiter: bytes = b",") -> int:
    """The index after the first line end outside quotes in a text that begins with a row; 0 if there is none."""
    return next((token.end() for token in _token(delimiter).finditer(text) if token[0][0] != _QUOTE), 0)


def last_row_end(text: bytes, delimiter: bytes = b",") -> int:
    """The same of the last line end; a carriage return at the very end may be half of one."""
    end = _line_end(text, len(text))
    if b'"' not in text:
        return end
    data = np.frombuffer(text, np.uint8)
    marks = np.flatnonzero(data == _QUOTE)
    opening = marks[::2]
    if not (np.isin(data[opening - 1], list(delimiter + b'\r\n"')) | (opening == 0)).all():
        # A quote stands in the middle of a value, so their parity tells nothing.
        return max((token.end() for token in _token(delimiter).finditer(text) if token[0][0] != _QUOTE), default=0)
    while end and (before := int(np.searchsorted(marks, end))) % 2:
        end = _line_end(text, int(marks[before - 1]))
    return end


def _line_end(text: bytes, stop: int) -> int:
    """The index after the last line end before `stop`."""
    return max(text.rfind(b"\n", 0, stop), text.rfind(b"\r", 0, min(stop, len(text) - 1))) + 1


@cache
def _token(delimiter: bytes) -> re.Pattern[bytes]:
    """A quoted value, or a line end outside quotes."""
    after = rb"(?:\A|(?<=[" + re.escape(delimiter) + rb"\r\n]))"
    return re.compile(after + rb'"(?:[^"]+|"")*+(?:"|\Z)|\r\n|\n|\r(?!\Z)')
