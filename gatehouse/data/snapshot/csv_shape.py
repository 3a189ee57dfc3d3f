"""The shape of a CSV that nobody declared: its encoding, its delimiter and its header."""

import codecs
import csv
import gzip
import io
import itertools
import re
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatehouse.errors import DeclarationError

_ENDINGS = (".csv", ".tsv", ".txt")
_OF_WINDOWS = re.compile(rb"[\x80\x82-\x8c\x8e\x91-\x9c\x9e\x9f]")
_SEPARATORS = ",;\t|"
_NEWLINE = b"\n"
_ROWS_CUT = 20_000
_OTHER_FORMATS = {
    b"PK\x03\x04": ("an Excel file or a zip", "Save the table as CSV, or unpack it."),
    b"\xd0\xcf\x11\xe0": ("an old Excel file", "Save the table as CSV."),
    b"\x1f\x8b": ("gzip", "Rename it to .csv.gz."),
    b"PAR1": ("Parquet", "Rename it to .parquet."),
}
"""By the first bytes, what a file is whatever its name is, and what to do."""
_FIXED = re.compile(r"\S {2,}\S+ {2,}\S")
_SEP = re.compile(r"sep=.$")
csv.field_size_limit(2**31 - 1)


def require_ending(path: Path) -> None:
    """Refuse what is not there, and a file that by its ending is no CSV.

    Raises:
        DeclarationError: saying which.
    """
    if not path.exists():
        raise DeclarationError(f"{path}: no such file.")
    if not path.is_file():
        raise DeclarationError(f"{path}: expected a file, found none.")
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if not suffixes or suffixes[-1] not in _ENDINGS:
        raise DeclarationError(
            f"{path}: expected a CSV ({', '.join(_ENDINGS)}, also .gz) or a Parquet file (.parquet), by its ending. "
            "If it is a CSV, rename it to .csv or .tsv."
        )


@contextmanager
def in_utf8(path: Path) -> Iterator[tuple[Path, str]]:
    """The text of a file as a plain file in UTF-8, and its encoding.

    Raises:
        DeclarationError: if it is no text, or no intact gzip.
    """
    with tempfile.TemporaryDirectory(prefix="gatehouse-sniff-") as folder:
        plain = Path(folder) / "plain.csv"
        try:
            encoding = _encoding(path)
            read_as = "utf-8-sig" if encoding == "utf-8" else encoding
            with (
                _opened(path) as raw,
                io.TextIOWrapper(raw, encoding=read_as, newline="") as text,
                open(plain, "w", encoding="utf-8", newline="") as target,
            ):
                shutil.copyfileobj(text, target)
        except UnicodeError:
            raise _no_text(path) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise DeclarationError(f"{path}: is not intact gzip: {error}. Fetch it again.") from None
        yield plain, encoding


def _no_text(path: Path) -> DeclarationError:
    return DeclarationError(
        f"{path}: expected text in UTF-8, UTF-16, cp1252 or latin-1, found bytes that are none. Is it a CSV?"
    )


def _require_text(path: Path, beginning: bytes) -> None:
    """Refuse what another program wrote in a format of its own, which a CSV was never in."""
    for sign, (found, advice) in _OTHER_FORMATS.items():
        if beginning.startswith(sign):
            raise DeclarationError(f"{path}: expected a CSV, found {found}. {advice}")


def _opened(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def _encoding(path: Path) -> str:
    """UTF-16 by its mark, UTF-8 where all bytes are; else one of western Europe: that of Windows has letters more."""
    decoder, of_windows = codecs.getincrementaldecoder("utf-8")(), False
    is_utf8, lines = True, 0
    with _opened(path) as stream:
        data = stream.read(2**20)
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return "utf-16"
        _require_text(path, data)
        while data:
            if (at := data.find(b"\0")) >= 0:
                line = lines + data.count(_NEWLINE, 0, at) + 1
                raise DeclarationError(
                    f"{path}: expected text, found a NUL byte in line {line}. If it is a CSV, remove them: "
                    "tr -d '\\000' < FILE, unless it is UTF-16 without a mark: save it as UTF-8."
                )
            lines += data.count(_NEWLINE)
            try:
                is_utf8 = is_utf8 and decoder.decode(data) is not None
            except UnicodeDecodeError:
                is_utf8 = False
            of_windows = of_windows or _OF_WINDOWS.search(data) is not None
            data = stream.read(2**20)
    if is_utf8 and not decoder.getstate()[0]:
        return "utf-8"
    return "cp1252" if of_windows else "latin-1"


def shape_of(plain: Path, name: str) -> tuple[str, list[str]]:
    """The delimiter that cuts most rows into one number of cells, and the header.

    Raises:
        DeclarationError: if the first line is no header of these rows.
    """
    cuts = [_cut(plain, delimiter) for delimiter in _SEPARATORS]
    found = max(cuts, key=lambda cut: (cut.width > 1, cut.rows, cut.width))
    blanks = _cut(plain, " ")
    if found.width <= 1 < blanks.width == len(blanks.first[0]):
        found = blanks
    first, second = found.first
    _require_table(plain, name, found)
    if first[0].startswith("\ufeff"):
        raise DeclarationError(
            f"{name}: expected at most one byte order mark, found two. Save it as UTF-8 without such a mark."
        )
    if len(first) != found.width:
        if found.above and not any(map(_is_number, found.top)):
            raise DeclarationError(
                f"{name}: {found.above} lines stand before the table. Remove them: a header is the first line."
            )
        raise DeclarationError(
            f"{name}: expected a header of {found.width} cells, as most rows have, found a first line of {len(first)}. "
            "Correct the first line."
        )
    for place, (above, below) in enumerate(zip(first, second, strict=False), 1):
        if _is_number(above) and _is_number(below):  # The cells are not shown: they may be those of a person.
            raise DeclarationError(
                f"{name}: expected a header in the first line, but cell {place} of it is a number, as the cell below "
                "it is. Add a line with the names of the columns; where the first line has them, give that column a "
                "name that is no number, as y1990."
            )
    require_different(first, name)
    return found.delimiter, first


def _require_table(plain: Path, name: str, found: "_Cut") -> None:
    """Refuse a text that is no table with a header, by its first line."""
    with open(plain, encoding="utf-8") as stream:
        line = next((each.strip() for each in stream if each.strip()), "")
    if _SEP.match(line):
        raise DeclarationError(f"{name}: expected a header in the first line, found {line}. Remove this line.")
    if line.startswith('{"'):
        raise DeclarationError(
            f"{name}: expected a CSV, found JSON. JSON lines are read by a source whose member ends with .jsonl; for a "
            "first look, write them as CSV or Parquet."
        )
    if found.width == 1 and _FIXED.search(line):
        raise DeclarationError(
            f"{name}: expected a comma, a semicolon, a tab or a bar between the cells, found columns of a fixed width. "
            "Write it as CSV."
        )


def require_different(columns: Sequence[str], name: str) -> None:
    """Refuse columns with the same name.

    Args:
        columns: Their names.
        name: Of the file, for the message.

    Raises:
        DeclarationError: with the places of those that are there more than once.
    """
    places: dict[str, list[str]] = {}
    for place, column in enumerate(columns, 1):
        places.setdefault(column, []).append(str(place))
    if repeated := [
        f"{'no name' if not column else 'one name'} for columns {', '.join(each)}"
        for column, each in places.items()
        if len(each) > 1
    ]:  # The names are not shown: without a header they are the cells of a row.
        raise DeclarationError(
            f"{name}: expected columns with different names, found {'; '.join(repeated)}. Rename them."
        )


def empty_lines(plain: Path) -> int:
    """How many lines between the rows of a file of one column are empty: they are no rows to any reader of CSV."""
    found = since = 0
    with open(plain, encoding="utf-8", newline="") as stream:
        rows = itertools.dropwhile(lambda row: not row, csv.reader(stream))
        for row in rows:
            found, since = (found + since, 0) if row else (found, since + 1)
    return found


@dataclass(frozen=True)
class _Cut:
    """What a delimiter makes of the first rows.

    Attributes:
        delimiter: Between cells.
        width: How many cells most rows have.
        rows: How many rows have so many.
        first: The first two rows.
        top: The first row of that width.
        above: How many lines stand above it.
    """

    delimiter: str
    width: int
    rows: int
    first: tuple[list[str], list[str]]
    top: list[str]
    above: int


def _cut(plain: Path, delimiter: str) -> _Cut:
    with open(plain, encoding="utf-8", newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        lines = [(row, reader.line_num) for row in itertools.islice(reader, _ROWS_CUT) if row]
    if not lines:
        return _Cut(delimiter, 0, 0, ([], []), [], 0)
    ((width, rows),) = Counter(len(row) for row, _ in lines).most_common(1)
    top, line = next((row, line) for row, line in lines if len(row) == width)
    return _Cut(delimiter, width, rows, (lines[0][0], lines[1][0] if len(lines) > 1 else []), top, line - 1)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
