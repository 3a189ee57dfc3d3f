"""Where the rows of a text of CSV lie: found by the places of quotes, line ends and delimiters, all rows at once."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

Places = np.ndarray
"""Indices of bytes, ascending, shape (n,), int64."""
_QUOTE, _LINE_FEED, _CARRIAGE_RETURN = b'"\n\r'


@dataclass(frozen=True)
class Lines:
    """The rows of a text in order, without empty lines.

    Attributes:
        starts: Index of each row's first byte, shape (rows,).
        stops: Index after its last byte, without the line end, shape (rows,).
        numbers: The line that it ends on, from 1, shape (rows,).
        widths: How many cells it has, shape (rows,).
    """

    starts: Places
    stops: Places
    numbers: Places
    widths: Places


@cache
def quoted(delimiter: bytes) -> re.Pattern[bytes]:
    """A value in quotes, from its first quote to its last."""
    edge = re.escape(delimiter) + rb"\r\n"
    return re.compile(rb"(?<![^" + edge + rb'])"[^"]*(?:""[^"]*)*"(?=[' + edge + rb"]|\Z)")


def lines_of(text: bytes, delimiter: bytes) -> Lines:
    """The rows of a text whose quotes are all closed.

    Args:
        text: Whole rows.
        delimiter: The byte between cells.
    """
    data = np.frombuffer(text, np.uint8)
    inside = _inside(text, data, delimiter)
    every = np.flatnonzero(data == _LINE_FEED)
    if b"\r" in text:
        returns = np.flatnonzero(data == _CARRIAGE_RETURN)
        following = data[np.minimum(returns + 1, len(data) - 1)]
        every = np.sort(np.concatenate([every, returns[(following != _LINE_FEED) | (returns + 1 == len(data))]]))
    numbers = np.flatnonzero(~inside(every)) + 1
    ends = every[numbers - 1]
    if not len(ends) or ends[-1] != len(data) - 1:
        ends, numbers = np.append(ends, len(data)), np.append(numbers, len(every) + 1)
    starts = np.concatenate([[0], ends[:-1] + 1])
    ended = (ends < len(data)) & (data[np.minimum(ends, len(data) - 1)] == _LINE_FEED)
    stops = ends - (ended & (ends > starts) & (data[ends - 1] == _CARRIAGE_RETURN))
    between = np.flatnonzero(data == delimiter[0])
    between = between[~inside(between)]
    widths = np.diff(np.searchsorted(between, stops), prepend=0) + 1  # Between two rows there are only line ends.
    held = stops > starts
    return Lines(starts[held], stops[held], numbers[held], widths[held])


def without(text: bytes, lines: Lines, dropped: Places) -> bytes:
    """The text without some of its rows; their line ends stay, as empty lines.

    Args:
        text: Whole rows.
        lines: Where they lie.
        dropped: Indices of the rows to remove, shape (removed rows,).
    """
    pieces, at = [], 0
    for start, stop in zip(lines.starts[dropped].tolist(), lines.stops[dropped].tolist(), strict=True):
        pieces.append(text[at:start])
        at = stop
    return b"".join([*pieces, text[at:]])


def _inside(text: bytes, data: np.ndarray, delimiter: bytes) -> Callable[[Places], np.ndarray]:
    """Tells which places are inside quotes."""
    if b'"' not in text:
        return lambda places: np.zeros(len(places), bool)
    quotes = np.flatnonzero(data == _QUOTE)
    opening = quotes[::2]
    opens = np.zeros(256, bool)
    opens[list(delimiter + b'\r\n"')] = True
    if len(quotes) % 2 == 0 and (opens[data[opening - 1]] | (opening == 0)).all():
        return lambda places: np.searchsorted(quotes, places) % 2 == 1
    # Some quote stands in the middle of a value, where it is a letter like any other.
    spans = np.array([found.span() for found in quoted(delimiter).finditer(text)], np.int64).reshape(-1, 2)

    def inside(places: Places) -> np.ndarray:
        before = np.searchsorted(spans[:, 0], places, side="right") - 1
        found: np.ndarray = (before >= 0) & (places < spans[np.maximum(before, 0), 1]) if len(spans) else places < 0
        return found

    return inside
