"""Finds what is wrong with a CSV file that could not be read: its encoding, or a row with too few or many fields."""

import csv
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path

_DELIMITERS = ",;\t|"


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
        delimiter = max(_DELIMITERS, key=header.count)
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
