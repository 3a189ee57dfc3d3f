"""Rows of a text of CSV: where Python's own reader finds them."""

import csv
import io

from hypothesis import example, given, settings
from hypothesis import strategies as st

from gatehouse.data.sources.csv_lines import lines_of, quoted, without

SOUP = st.lists(
    st.sampled_from([b"a", b"b", b";", b'"', b"\n", b"\r\n", b"\r", b'";"', b'"\n"', b'""', b'a"', b'\n"a\r\nb";'])
).map(b"".join)


def _closed(text: bytes) -> bool:
    """Whether every quote that opens a value closes it."""
    rest = quoted(b";").sub(b"", text)
    return all(rest[at - 1 : at] not in (b"", b";", b"\r", b"\n") for at, byte in enumerate(rest) if byte == ord('"'))


@given(SOUP)
@example(b'"a\nb";c\r\n\r\nd;5" pipe\n')
@example(b"a\rb\r\nc")
@settings(max_examples=800, deadline=None)
def test_rows_lines_and_widths_are_those_of_a_reader(text: bytes) -> None:
    if not text or not _closed(text):
        return
    reader = csv.reader(io.StringIO(text.decode("latin-1"), newline=""), delimiter=";")
    wanted = [(reader.line_num, len(row)) for row in reader if row]
    lines = lines_of(text, b";")
    assert list(zip(lines.numbers.tolist(), lines.widths.tolist(), strict=True)) == wanted


@given(SOUP, st.sets(st.integers(0, 5)))
@settings(max_examples=300, deadline=None)
def test_rows_that_go_leave_the_others_as_they_were(text: bytes, numbers: set[int]) -> None:
    if not text or not _closed(text):
        return
    lines = lines_of(text, b";")
    rows = [text[start:stop] for start, stop in zip(lines.starts, lines.stops, strict=True)]
    dropped = sorted(number for number in numbers if number < len(rows))
    rest = without(text, lines, dropped)
    left = lines_of(rest, b";") if rest else lines
    kept = [rest[start:stop] for start, stop in zip(left.starts, left.stops, strict=True)] if rest else []
    assert kept == [row for number, row in enumerate(rows) if number not in dropped]
