"""The header of a CSV file, and what is wrong with one that cannot be read: its encoding, or the fields of a row."""

import csv
import gzip
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

_DELIMITERS = ",;\t|"


def header_of(path: Path) -> tuple[list[str], str]:
    """The column names of a file, and the delimiter: of those that occur, the one that the first line has most often.

    Raises:
        OSError, EOFError: if the file cannot be read.
    """
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    with opened(path, "rt", encoding="utf-8-sig", errors="replace", newline="") as lines:
        first = next((line for line in lines if line.strip()), "")
        delimiter = _delimiter(first)
        return next(csv.reader(chain([first], lines), delimiter=delimiter), []), delimiter


def flaw_of(path: Path) -> str:
    """The first line that is not UTF-8, or has another number of fields than the header; empty if there is none."""
    opened = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opened(path, "rb") as file:
            return _flaw(file)
    except (OSError, EOFError) as error:
        return f"it cannot be read: {error}."


def _flaw(file: Iterable[bytes]) -> str:
    number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(file, 1):
            yield line.decode("utf-8-sig" if number == 1 else "utf-8")

    try:
        text = lines()
        header = next((line for line in text if line.strip()), "")
        if not header:
            return "expected a header and rows, found an empty file."
        delimiter = _delimiter(header)
        width = len(next(csv.reader([header], delimiter=delimiter)))
        for row in csv.reader(text, delimiter=delimiter):
            if row and len(row) != width:
                return f"line {number}: expected {width} fields as in the header, found {len(row)}."
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        return f"line {number}: expected text in UTF-8, found the byte 0x{byte:02x}. Write the file in UTF-8."
    except csv.Error as error:
        return f"line {number}: {error}."
    return ""


def _delimiter(header: str) -> str:
    return max(_DELIMITERS, key=header.count)
