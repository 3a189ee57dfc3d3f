"""Cutting text: only between rows, wherever its windows end, and in bounded memory."""

import csv
import io
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.blocks import blocks, lines_in
from gatehouse.errors import SourceError

CELLS = st.text(st.sampled_from('ab,"\r\n '), max_size=6)
TABLES = st.lists(st.lists(CELLS, min_size=2, max_size=3), min_size=1, max_size=12)


def _cut(text: bytes, size: int) -> list[tuple[int, bytes]]:
    windows = (text[start : start + size] for start in range(0, len(text), size))
    return list(blocks(windows, longest=10**6, name="t", delimiter=b","))


def _written(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if set(cell) & set(',"\r\n') else cell


def _rows(text: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text.decode(), newline=""), strict=True))


@given(TABLES, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from([1, 2, 3, 5, 8, 13, 64]))
@settings(max_examples=400, deadline=None)
def test_blocks_are_the_text_cut_between_rows_only(table: list[list[str]], line: str, size: int) -> None:
    text, before = "".join(",".join(map(_written, row)) + line for row in table).encode(), b""
    for lines, block in _cut(text, size):
        assert lines == lines_in(before)
        assert _rows(before) + _rows(block) == table[: len(_rows(before)) + len(_rows(block))]
        before += block
    assert before == text
    assert len(_cut(text, 10**6)) <= 2, "as much as is sure to be whole"


@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize(("text", "line"), [('1,"2\n3,4\n', 1), ('1,"2 ""3"""\n\n4,"5\n6,"7"\n', 3), ('1,"2"3\n', 1)])
def test_a_quote_that_is_not_closed_at_the_end_of_its_value_is_named(text: str, line: int, size: int) -> None:
    with pytest.raises(SourceError, match=f"t, line {line}: a quote"):
        _cut(text.encode(), size)


def test_a_quote_within_a_value_is_a_letter() -> None:
    assert _cut(b'1,5" pipe\n2,6" pipe\n', 100) == [(0, b'1,5" pipe\n2,6" pipe\n')]


def test_a_quote_that_is_never_closed_is_an_error_and_not_all_memory() -> None:
    with pytest.raises(SourceError, match="no row ends within 10,000 bytes"):
        list(blocks(_unclosed(), longest=10_000, name="t", delimiter=b","))


def _unclosed() -> Iterator[bytes]:
    yield b'a,b\n1,"2\n' + b"3,4\n" * 100
    while True:
        yield b"5,6\n" * 100
