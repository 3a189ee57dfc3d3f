"""Numbers that are no number to a snapshot, as they have signs in them: percent, currencies, thousands set apart."""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from gatehouse.store.database import quoted

_SAMPLE = 200
_APART = r"[ '\x{2019}\x{a0}\x{202f}]"
_WHOLE = r"[1-9]\d{0,2}"
_NUMBER = (
    rf"(?:\d+(?:[.,]\d+)?|{_WHOLE}(?:,\d{{3}})+(?:\.\d+)?|{_WHOLE}(?:\.\d{{3}})+(?:,\d+)?"
    rf"|{_WHOLE}(?:{_APART}\d{{3}})+(?:[.,]\d+)?)"
)
_MONEY = r"(?:\p{Sc}|EUR|USD|GBP|CHF|JPY)"
_PLAIN = r"^[+-]?\d+(?:[.,]\d+)?$"
_WRITTEN = rf"^[+-]?(?:{_MONEY}{_APART}?)?[+-]?{_NUMBER}(?:{_APART}?(?:%|{_MONEY}))?$"
PERCENT, COMMAS, POINTS = "a percent sign", "commas between thousands", "points between thousands"
DECIMAL_COMMA = "a decimal comma"
_MARKS = {
    PERCENT: "%",
    "a currency": _MONEY,
    COMMAS: rf"^\D*{_WHOLE}(?:,\d{{3}})+(?:\.\d+)?\D*$",
    POINTS: rf"^\D*{_WHOLE}(?:(?:\.\d{{3}})+,\d+|(?:\.\d{{3}}){{2,}})\D*$",
    "blanks or apostrophes between thousands": rf"\d{_APART}\d",
    DECIMAL_COMMA: r",(?:\d{1,2}|\d{4,})\D*$",
}
THOUSANDS = {sign: rf"^[+-]?{_WHOLE}(?:[{sign}]\d{{3}})+$" for sign in ".,"}
"""By sign, whole numbers with it between thousands; with one, they may also be numbers with three decimals."""


@dataclass
class WrittenNumbers:
    """What is known of the numbers in a column of texts.

    Attributes:
        marks: How many of them have each sign.
        others: Texts that are no numbers at all.
        wanted: Whether texts are looked at that nothing reads as numbers; None before the first ones.
    """

    marks: Counter[str] = field(default_factory=Counter)
    others: int = 0
    wanted: bool | None = None

    def look(self, texts: pa.Array) -> None:
        """Take texts, shape (rows,), into account; if most of the first ones are no numbers, no more are looked at."""
        if self.wanted is None:
            sample = texts.take(pa.array(range(0, len(texts), -(-len(texts) // _SAMPLE))))
            self.wanted = 2 * _count(sample, _WRITTEN) > len(sample)
        if self.wanted:
            self.count(texts.filter(pc.invert(pc.match_substring_regex(texts, _PLAIN))))

    def count(self, odd: pa.Array) -> None:
        """Take texts, shape (rows,), that are no plain numbers into account."""
        if not len(odd):
            return
        written = pc.match_substring_regex(odd, _WRITTEN)
        numbers = odd.filter(written)
        self.others += len(odd) - len(numbers)
        self.marks.update({mark: _count(numbers, pattern) for mark, pattern in _MARKS.items()})

    def told(self) -> tuple[str, ...]:
        """The signs, in the order of a sentence."""
        return tuple(mark for mark in _MARKS if self.marks[mark])


def as_number(column: str, marks: Collection[str]) -> str:
    """The expression in DuckDB's SQL that reads a column of such numbers as a double."""
    comma = POINTS in marks or (DECIMAL_COMMA in marks and COMMAS not in marks)
    kept = "[^0-9,-]" if comma else "[^0-9.-]"
    digits = f"regexp_replace({quoted(column)}, '{kept}', '', 'g')"
    number = f"replace({digits}, ',', '.')" if comma else digits
    return f"CAST({number} AS DOUBLE){' / 100' * (PERCENT in marks)}"


def _count(texts: pa.Array, pattern: str) -> int:
    return int(pc.sum(pc.match_substring_regex(texts, pattern)).as_py() or 0)
