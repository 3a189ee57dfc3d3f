"""Cuts text that comes in windows into blocks of whole rows; a line end inside quotes ends no row."""

import re
from collections.abc import Iterable, Iterator
from functools import cache

from gatehouse.errors import SourceError

_QUOTED = rb'"[^"]*+(?:""[^"]*+)*+"'
_CLOSED = re.compile(_QUOTED + rb"\r?")
_OPEN = re.compile(_QUOTED[:-1] + rb'(?:"\r?)?')
"""The beginning of a quoted value, which may go on in the next window."""


def blocks(
    windows: Iterable[bytes],
    *,
    longest: int,
    name: str,
    delimiter: bytes = b"",
    lines: int = 0,
    left: int | None = None,
) -> Iterator[tuple[int, bytes]]:
    """Cut a text after the last row that ends in each window; each block comes with the number of lines before it.

    With a delimiter the text is a CSV. It begins after `lines` lines. If it goes on after the windows, the last whole
    row ends `left` bytes before their end. Raises SourceError for a quote that opens a value and is not closed at its
    end, which parsers accept in silence, if no row ends within `longest` bytes, and if the last row ends elsewhere.
    """
    text, quote = b"", -1
    for window in windows:
        text += window
        end, quote = _rows_end(text, delimiter)
        if quote >= 0 and not _OPEN.fullmatch(text, quote):
            raise _not_closed(name, lines + lines_in(text[:quote]))
        if end:
            yield lines, text[:end]
            lines, text, quote = lines + lines_in(text[:end]), text[end:], quote - end
        if len(text) > longest:
            raise SourceError(
                f"{name}: no row ends within {longest:,} bytes after line {lines:,}. A quote is open there and never "
                "closed, or a row is too long."
            )
    if left is not None:
        if len(text) != left:
            raise SourceError(f"{name}: no row ends {left:,} bytes before the end of a block.")
        return
    if quote >= 0 and not _CLOSED.fullmatch(text, quote):
        raise _not_closed(name, lines + lines_in(text[:quote]))
    if text:
        yield lines, text


def last_row_end(text: bytes, quoted: bool) -> int:
    """The index after the last row that ends in a piece of a CSV, which itself ends within quotes or not; -1 for none.

    Every quote counts as one that opens or closes a value, so a quote that is a character of a value misleads it.
    """
    stop = len(text)
    while stop >= 0:
        quote = text.rfind(b'"', 0, stop)
        if not quoted:
            # A carriage return at the very end may be half of a line end.
            returns = text.rfind(b"\r", quote + 1, min(stop, len(text) - 1))
            if (end := max(text.rfind(b"\n", quote + 1, stop), returns)) >= 0:
                return end + 1
        stop, quoted = quote, not quoted
    return -1


def _rows_end(text: bytes, delimiter: bytes) -> tuple[int, int]:
    """The index after the last whole row, and that of a quoted value after it which is not whole; -1 for none."""
    if not delimiter:
        return text.rfind(b"\n") + 1, -1
    if b'"' not in text:
        # A carriage return at the very end may be half of a line end.
        return max(text.rfind(b"\n"), text.rfind(b"\r", 0, len(text) - 1)) + 1, -1
    cells, _, rows = _grammar(delimiter)
    end = _end(rows, text)
    last = _end(cells, text, end)
    return end, last if text[last : last + 1] == b'"' else -1


def header_end(text: bytes, delimiter: bytes) -> int:
    """Where the rows of a CSV begin: after empty lines and the header."""
    start = len(text) - len(text.lstrip(b"\r\n"))
    header = _grammar(delimiter)[1].match(text, start)
    return header.end() if header else len(text)


def lines_in(text: bytes) -> int:
    """How many lines end in a text."""
    # Most texts have no carriage return, and finding none is ten times as fast as counting none.
    returns = text.count(b"\r") - text.count(b"\r\n") if b"\r" in text else 0
    return text.count(b"\n") + returns


@cache
def _grammar(delimiter: bytes) -> tuple[re.Pattern[bytes], re.Pattern[bytes], re.Pattern[bytes]]:
    """Whole cells, each with the delimiter after it; one whole row; and whole rows."""
    mark = re.escape(delimiter)
    cell = rb'(?:%s|[^"%s\r\n][^%s\r\n]*+|)' % (_QUOTED, mark, mark)
    cells = rb"(?:%s%s)*+" % (cell, mark)
    row = rb"%s%s(?:\r\n|\n|\r(?!\Z))" % (cells, cell)
    return re.compile(cells), re.compile(row), re.compile(rb"(?:%s)*+" % row)


def _end(pattern: re.Pattern[bytes], text: bytes, start: int = 0) -> int:
    match = pattern.match(text, start)
    return match.end() if match else start


def _not_closed(name: str, lines: int) -> SourceError:
    return SourceError(
        f"{name}, line {lines + 1}: a quote opens a value and is not closed at its end. Expected quotes around a whole "
        'value, and "" for a quote inside it (RFC 4180).'
    )
