"""Cutting text: only between rows, wherever its windows end, and in bounded memory."""

from collections.abc import Iterator

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.blocks import blocks
from gatehouse.errors import SourceError

SOUP = st.lists(st.sampled_from([b"a", b"b", b",", b'"', b"\n", b"\r", b'","', b'"\n"', b'""']), max_size=60).map(
    b"".join
)
SIZES = st.sampled_from([3, 5, 8, 13, 64])


def _cut(text: bytes, size: int) -> list[bytes]:
    windows = (text[start : start + size] for start in range(0, len(text), size))
    return list(blocks(windows, quotes=True, longest=10**6, name="t"))


def _ends_of_rows(text: bytes) -> set[int]:
    """Where rows end, told letter by letter."""
    place, ends = "start", set()
    for index, letter in enumerate(text.decode()):
        outside = "start" if letter in ",\r\n" else "field"
        if place == "quoted":
            place = "closing" if letter == '"' else "quoted"
        elif letter == '"' and place in ("start", "closing"):
            place = "quoted"
        else:
            place = outside
            if letter in "\r\n" and text[index : index + 2] != b"\r\n":
                ends.add(index + 1)
    return ends


@given(SOUP, SIZES)
@example(b'a,b\n1,"x\ny"\n2,5" pipe\n"z', 5)
@example(b'a\n"x\n', 3)
@settings(max_examples=600, deadline=None)
def test_blocks_are_the_text_cut_between_rows_only(text: bytes, size: int) -> None:
    cut = _cut(text, size)
    assert b"".join(cut) == text
    ends, place = _ends_of_rows(text), 0
    for block in cut[:-1]:
        place += len(block)
        assert place in ends
    whole = list(blocks([text, b""], quotes=True, longest=10**6, name="t")) if text else []
    if ends - {len(text)}:
        assert len(whole[0]) >= max(ends - {len(text)}), "the last row end that is sure"


def test_a_quote_that_is_never_closed_is_an_error_and_not_all_memory() -> None:
    with pytest.raises(SourceError, match="no row ends within 10,000 bytes"):
        list(blocks(_unclosed(), quotes=True, longest=10_000, name="t"))


def _unclosed() -> Iterator[bytes]:
    yield b'a,b\n1,"2\n' + b"3,4\n" * 100
    while True:
        yield b"5,6\n" * 100
