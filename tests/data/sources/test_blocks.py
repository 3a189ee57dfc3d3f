"""Cutting text: only between rows, by the data before alone, and the same whichever way the file is looked at."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.blocks import Cut, blocks, unquoted_cuts
from gatehouse.data.sources.raw_file import RawFile
from gatehouse.errors import SourceError

SOUP = st.lists(st.sampled_from([b"a", b"b", b",", b'"', b"\n", b"\r", b'","', b'"\n"', b'""']), max_size=60).map(
    b"".join
)
SIZES = st.sampled_from([3, 5, 8, 13, 64])


def _cut(text: bytes, size: int) -> list[bytes]:
    windows = (text[start : start + size] for start in range(0, len(text), size))
    return [b"".join(block.pieces) for block in blocks(windows, quotes=True, longest=10**6, name="t")]


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
@settings(max_examples=600, deadline=None)
def test_blocks_are_the_text_cut_between_rows_only(text: bytes, size: int) -> None:
    cut = _cut(text, size)
    assert b"".join(cut) == text
    place = 0
    for block in cut[:-1]:
        place += len(block)
        assert place in _ends_of_rows(text)


@given(SOUP, SOUP, SIZES)
@settings(max_examples=300, deadline=None)
def test_an_append_keeps_all_blocks_but_the_last(text: bytes, more: bytes, size: int) -> None:
    kept = _cut(text, size)[:-1]
    assert _cut(text + more, size)[: len(kept)] == kept


@given(SOUP | SOUP.map(lambda text: text.replace(b'"', b"c")), SIZES)
@example(b"\n\n\r\n\r\n", 5)
@example(b"a,b\n\r\r\n\ra", 3)
@settings(max_examples=400, deadline=None)
def test_looking_on_threads_gives_the_same_blocks(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int
) -> None:
    path = tmp_path_factory.mktemp("text") / "t.csv"
    path.write_bytes(text)
    windows = (text[start : start + size] for start in range(0, len(text), size))
    expected: list[Cut] = [block.cut() for block in blocks(windows, quotes=True, longest=10**6, name="t")]
    with ThreadPoolExecutor(2) as pool:
        cuts = unquoted_cuts(RawFile("t.csv", str(path)), size, pool, quotes=True)
    assert cuts is None or cuts == expected


def test_a_quote_that_is_never_closed_is_an_error_and_not_all_memory() -> None:
    with pytest.raises(SourceError, match="no row ends within 10,000 bytes"):
        list(blocks(_unclosed(), quotes=True, longest=10_000, name="t"))


def _unclosed() -> Iterator[bytes]:
    yield b'a,b\n1,"2\n' + b"3,4\n" * 100
    while True:
        yield b"5,6\n" * 100


def test_a_file_that_ends_in_a_quoted_line_end_is_read(tmp_path: Path) -> None:
    assert _cut(b'a\n"x\n', 3) == [b'a\n"x\n']
